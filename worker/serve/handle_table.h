// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "ipc/channel/worker_end.h"
#include "worker/serve/object_table.h"

namespace isopool::worker {

/// The objects behind a client's handles, and the private memory that they keep: that of tensors on
/// the heap, of bytes and of bytearrays, in lists, tuples and dicts too. A storage behind several
/// handles counts once. Counts reach the supervisor through the channel. The call loop's thread,
/// with the GIL.
class HandleTable {
 public:
  explicit HandleTable(ipc::WorkerEnd& end) : end_(end) {}

  /// Borrowed; null if there is none.
  PyObject* find(base::HandleId id) const { return objects_.find(id); }
  /// Throws Refusal, and lets the object go, if the client would keep more than it may.
  void set(base::HandleId id, PyRef object);
  void forget(base::HandleId id);
  void clear();
  /// The handle that was made last, alive or not; 0: none was.
  base::HandleId newest() const noexcept { return newest_; }

  /// Throws Refusal if the client keeps as much as it may.
  void requireRoom() const;
  /// 0: no limit.
  void limitBytes(uint64_t most) { limit_ = most; }

 private:
  struct Storage {
    uint64_t bytes = 0;
    uint32_t handles = 0;
  };

  void account(base::HandleId id, PyObject* object);
  void discount(base::HandleId id);
  void tell() noexcept { end_.tellHandles(handles_.size(), bytes_); }

  ipc::WorkerEnd& end_;
  ObjectTable<base::HandleId> objects_;
  std::unordered_map<base::HandleId, std::vector<const void*>>
      handles_;  // and the storages of each
  std::unordered_map<const void*, Storage> storages_;
  base::HandleId newest_{0};
  uint64_t bytes_ = 0;
  uint64_t limit_ = 0;
};

}  // namespace isopool::worker
