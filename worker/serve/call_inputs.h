// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ipc/memory/page_history.h"
#include "ipc/tensor/value_codec.h"
#include "worker/serve/client_link.h"

namespace isopool::worker {

/// Throws a Refusal with the supervisor's reason if it refused this segment to the client.
void throwIfRefused(const ClientLink& channel, uint32_t segment);

/// The leases that one call brought and that no storage holds yet. The destructor returns the rest,
/// so that a refused call keeps no memory of the client. The call loop's thread.
class UnclaimedLeases {
 public:
  /// `channel` and `records` must outlive this object.
  UnclaimedLeases(const ClientLink& channel, const std::vector<ipc::StorageRecord>& records)
      : channel_(channel), records_(records) {}
  ~UnclaimedLeases();
  UnclaimedLeases(const UnclaimedLeases&) = delete;
  UnclaimedLeases& operator=(const UnclaimedLeases&) = delete;

  /// The next record has a storage now, which returns the lease when it dies.
  void tookNext() { ++taken_; }

 private:
  const ClientLink& channel_;
  const std::vector<ipc::StorageRecord>& records_;
  size_t taken_ = 0;
};

/// The storages that one call brought, so that its answer can refer to those that it returns.
/// Reused from call to call. The call loop's thread.
class CallInputs {
 public:
  /// False if a record names a segment or package that is not mapped yet. Throws Refusal if the
  /// supervisor refused the segment.
  static bool resolvable(const ClientLink& channel, const std::vector<ipc::StorageRecord>& records);

  /// Checks the reader's records and gives the reader a storage for each. `loans` are the leases of
  /// the same records. Throws Refusal, and SystemCallError if memory can't be mapped.
  void resolve(ClientLink& channel, ipc::PayloadReader& reader, UnclaimedLeases& loans);
  void clear() { inputs_.clear(); }

  /// The index of the record that `storage` was made for, if the answer can return the client's own
  /// memory; nullopt if the storage was resized, copied, or (in a package) written to.
  std::optional<size_t> echoOf(const c10::Storage& storage, const ipc::PageHistory& history) const;

  /// True if the call brought `storage`, even if its memory was replaced since.
  bool brought(const c10::Storage& storage) const;

 private:
  struct Input {
    const c10::StorageImpl* impl;
    const void* data;
    size_t bytes;
    ipc::StorageKind kind;
  };
  static c10::Storage makeStorage(ClientLink& channel, const ipc::StorageRecord& record);

  std::vector<Input> inputs_;
};

}  // namespace isopool::worker
