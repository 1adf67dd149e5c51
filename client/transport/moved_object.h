// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/ids.h"
#include "base/mutex.h"
#include "client/transport/control_writer.h"
#include "client/transport/fork_copies.h"
#include "ipc/memory/memory_object.h"

namespace isopool::client {

/// The shared memory of one moved object: its tensors' storages and its pickle. The worker that the
/// object was moved from writes it. All workers of the connection map it, and each sees what
/// another one writes. The workers keep it as long as this object lives, that is, as long as a
/// ReplicatedObj or a tensor refers to it. Any thread. No member blocks.
///
/// This process has its own mapping: the memory stays readable when a worker, all workers or the
/// supervisor die. In a forked child the destructor reports nothing to the supervisor.
class MovedObject : public std::enable_shared_from_this<MovedObject> {
 public:
  /// Creates the memory and announces it, with the object's name, to the supervisor of the
  /// connection with this number, to which `writer` writes. Does not wait until the workers have
  /// it: a worker waits for it when a request refers to it. Throws Error if there is no memory.
  static std::shared_ptr<MovedObject> make(std::shared_ptr<ControlWriter> writer,
                                           uint64_t connection, uint64_t bytes, std::string name);
  /// Announces the memory to another supervisor: from here on the workers of that connection have
  /// it.
  void announceTo(std::shared_ptr<ControlWriter> writer, uint64_t connection);
  ~MovedObject();
  MovedObject(const MovedObject&) = delete;
  MovedObject& operator=(const MovedObject&) = delete;

  /// The moved object of this process with this number; null if it no longer exists.
  static std::shared_ptr<MovedObject> find(base::PackageId id);

  /// From the same range as the numbers of ArchiveFile: the workers know both as packages.
  base::PackageId id() const { return id_; }
  /// True if the workers of the connection with this number have it.
  bool knownTo(uint64_t connection) const {
    return connection_.load(std::memory_order_relaxed) == connection;
  }

  /// The storage at that place, which shares ownership of this object; a null storage if it reaches
  /// beyond the memory. `offset` and `bytes` may come from a worker. As long as a storage for the
  /// same place exists, that one is returned, so that the tensors are aliases. Throws
  /// std::bad_alloc.
  c10::Storage storageAt(uint64_t offset, uint64_t bytes);

 private:
  struct Registry;
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  MovedObject(base::PackageId id, base::Fd object, uint64_t bytes, std::string name);

  const base::PackageId id_;
  const base::Fd object_;
  const std::string name_;
  std::atomic<uint64_t> connection_{0};
  const uint32_t generation_;  // see forkGeneration()
  ipc::Mapping mapping_;
  const CopiedInForks copied_;
  base::Mutex mutex_;
  std::shared_ptr<ControlWriter> writer_ ISOPOOL_GUARDED_BY(mutex_);
  std::map<std::pair<uint64_t, uint64_t>, WeakStorage> storages_
      ISOPOOL_GUARDED_BY(mutex_);  // by offset and length
};

/// Where in a moved object's memory a storage lies.
struct MovedSlice {
  std::shared_ptr<MovedObject> object;
  uint64_t offset = 0;
};

/// The place of a storage that MovedObject::storageAt made, else nullptr. Lives as long as the
/// storage.
const MovedSlice* movedSliceOf(const c10::Storage& storage) noexcept;

}  // namespace isopool::client
