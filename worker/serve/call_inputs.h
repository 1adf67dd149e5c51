// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ipc/memory/page_history.h"
#include "ipc/tensor/value_codec.h"
#include "worker/serve/client_link.h"

namespace isopool::worker {

/// Throws a Refusal that names the limit if the client may not have this segment.
void throwIfRefused(const ClientLink& channel, uint32_t segment);

/// What a client lent with one call, until storages hold it: at the end of this object the rest
/// goes back, so that a call that is refused keeps nothing.
class UnclaimedLeases {
 public:
  /// `records` must outlive this.
  UnclaimedLeases(const ClientLink& channel, const std::vector<ipc::StorageRecord>& records)
      : channel_(channel), records_(records) {}
  ~UnclaimedLeases();
  UnclaimedLeases(const UnclaimedLeases&) = delete;
  UnclaimedLeases& operator=(const UnclaimedLeases&) = delete;

  /// The next record has its storage, which gives it back.
  void tookNext() { ++taken_; }

 private:
  const ClientLink& channel_;
  const std::vector<ipc::StorageRecord>& records_;
  size_t taken_ = 0;
};

/// The storages that one call brought, so that its answer can name those that it gives back. Reused
/// from call to call. The call loop's thread.
class CallInputs {
 public:
  /// False if a record names a segment or package that is not mapped (yet).
  static bool resolvable(const ClientLink& channel, const std::vector<ipc::StorageRecord>& records);

  /// Checks the reader's records, whose loans these are, and gives it a storage for each. Throws
  /// Refusal.
  void resolve(ClientLink& channel, ipc::PayloadReader& reader, UnclaimedLeases& loans);
  void clear() { inputs_.clear(); }

  /// The index of the record that `storage` was made for, if the client shall get its own back.
  std::optional<size_t> echoOf(const c10::Storage& storage, const ipc::PageHistory& history) const;

  /// True if the call brought `storage`, whatever became of its memory.
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
