// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "ipc/channel/worker_end.h"
#include "worker/serve/object_table.h"

namespace isopool::worker {

/// The objects behind a client's handles, and the size of the private memory that they keep:
/// tensors on the heap, bytes and bytearrays, also inside lists, tuples and dicts. A storage behind
/// several handles counts once. The counts are published in the channel's control segment. The call
/// loop's thread, with the GIL.
class HandleTable {
 public:
  explicit HandleTable(ipc::WorkerEnd& end) : end_(end) {}

  /// A borrowed reference; null if the handle does not exist.
  PyObject* find(base::HandleId id) const { return objects_.find(id); }
  /// Throws Refusal, and drops the object, if the client's handles would exceed the memory limit.
  void set(base::HandleId id, PyRef object);
  /// Drops the object, which may run user code. No effect for an unknown handle.
  void forget(base::HandleId id);
  void clear();
  /// Notes that calls of this handle are calls of a replicated object.
  void setOwner(base::HandleId id, base::ObjectId object) { owners_[id] = object; }
  /// That object, which the client may have unloaded since.
  std::optional<base::ObjectId> ownerOf(base::HandleId id) const;
  /// The newest handle so far, alive or not; 0: none was made.
  base::HandleId newest() const noexcept { return newest_; }

  /// Throws Refusal if the client's handles have reached the memory limit.
  void requireRoom() const;
  /// Sets the memory limit in bytes; 0: no limit.
  void limitBytes(uint64_t most) { limit_ = most; }

 private:
  struct Storage {
    uint64_t bytes = 0;
    uint32_t handles = 0;
  };

  /// Adds the memory behind a new handle to the counts.
  void account(base::HandleId id, PyObject* object);
  /// Removes it again; no effect for an unknown handle.
  void discount(base::HandleId id);
  /// Publishes the counts.
  void tell() noexcept { end_.tellHandles(handles_.size(), bytes_); }

  ipc::WorkerEnd& end_;
  ObjectTable<base::HandleId> objects_;
  std::unordered_map<base::HandleId, std::vector<const void*>>
      handles_;                                        // and the storages of each
  std::unordered_map<const void*, Storage> storages_;  // by address
  std::unordered_map<base::HandleId, base::ObjectId> owners_;
  base::HandleId newest_{0};
  uint64_t bytes_ = 0;
  uint64_t limit_ = 0;  // bytes; 0: no limit
};

}  // namespace isopool::worker
