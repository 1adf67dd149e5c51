// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ipc/memory/page_history.h"
#include "ipc/tensor/value_codec.h"
#include "worker/memory/control_plane.h"
#include "worker/memory/copy_counts.h"
#include "worker/serve/call_inputs.h"
#include "worker/serve/client_link.h"

namespace isopool::worker {

/// Allocates `bytes` in the channel's output arena for the runtime itself. If the arena is full,
/// waits up to 2 s for another segment or for returned blocks; then throws a Refusal that names the
/// setting to raise. Handles messages of the supervisor while it waits.
void* allocateOutput(ClientLink& channel, size_t bytes, ControlPlane& control);

/// Determines how the storages of one answer reach the client: as the client's own input, as a lent
/// block, as stored bytes of a package, or as a copy, which is counted. A storage that the worker
/// still refers to (the model, a handle) is copied into another block, whose pages have been used
/// before: private pages for the worker instead would cost a page fault each. Reused from call to
/// call. The call loop's thread.
class ResultExport {
 public:
  ResultExport(const ipc::PageHistory& history, ControlPlane& control)
      : history_(history), control_(control) {}

  /// Makes a record for each storage of `writer`. Apart from the inputs, `writer` must hold the
  /// call's only references to them: a further reference counts as one of the model. Throws
  /// Refusal; the caller then cancels the leases (OutputBlocks::cancelLeases()).
  void describe(const ipc::PayloadWriter& writer, ClientLink& channel, const CallInputs& inputs,
                CopyCounts& copies);
  /// Valid until the next describe().
  std::span<const ipc::StorageRecord> records() const { return records_; }

 private:
  /// `extent`: the bytes of the storage that the answer's tensors use. Only these are copied.
  void describeOne(const c10::Storage& storage, ipc::StorageExtent extent, ClientLink& channel,
                   const CallInputs& inputs, CopyCounts& copies);
  bool copyKept(const c10::Storage& storage, ipc::StorageExtent extent, OutputBlocks& output,
                CopyCounts& copies);
  void copy(const c10::Storage& storage, ipc::StorageExtent extent, ipc::CopyReason reason,
            ClientLink& channel, CopyCounts& copies);
  void copyInto(void* block, const std::byte* data, ipc::StorageExtent extent,
                ipc::CopyReason reason, OutputBlocks& output, CopyCounts& copies);
  void copyInline(const std::byte* data, ipc::StorageExtent extent, ipc::CopyReason reason,
                  CopyCounts& copies);

  const ipc::PageHistory& history_;
  ControlPlane& control_;
  std::vector<ipc::StorageRecord> records_;
  std::vector<std::byte> inlineBytes_;  // content of the small copies of this answer
};

}  // namespace isopool::worker
