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

/// Room of `bytes` in the channel's output arena as a block of our own, waiting for more of it or
/// for returned blocks, but not for long: throws Refusal that names the knob.
void* allocateOutput(ClientLink& channel, size_t bytes, ControlPlane& control);

/// How the storages of one answer reach the client: as its own input, as a block that is lent, as
/// stored bytes of a package, else as a copy, which is counted. What somebody else in this worker
/// refers to as well (the model, a handle) is copied into a block of its own, whose pages have been
/// used before: to give the worker new pages instead would cost a page fault for each. Reused from
/// call to call. The call loop's thread.
class ResultExport {
 public:
  ResultExport(const ipc::PageHistory& history, ControlPlane& control)
      : history_(history), control_(control) {}

  /// Makes a record for each storage of `writer`, which beside the inputs is all of the call that
  /// still refers to them. Throws Refusal (the leases are then to be cancelled).
  void describe(const ipc::PayloadWriter& writer, ClientLink& channel, const CallInputs& inputs,
                CopyCounts& copies);
  /// Valid until the next describe().
  std::span<const ipc::StorageRecord> records() const { return records_; }

 private:
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
  std::vector<std::byte> inlineBytes_;
};

}  // namespace isopool::worker
