// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <unordered_set>

#include "base/mutex.h"

namespace isopool::client {

/// The numbers of the replicated objects that one worker is known to have. Any thread; the lock is
/// held only for moments. This is knowledge of this process only: if the worker has unloaded an
/// object that is still listed here, its answer is ObjectUnloaded.
class DefinedObjects {
 public:
  /// False also for an object that a spare made ahead of time: the first call defines it again.
  bool has(uint64_t object) const {
    base::MutexLock lock(mutex_);
    return objects_.count(object) != 0;
  }
  /// Call when the worker has answered the definition. Throws std::bad_alloc.
  void add(uint64_t object) {
    base::MutexLock lock(mutex_);
    objects_.insert(object);
  }
  void remove(uint64_t object) {
    base::MutexLock lock(mutex_);
    objects_.erase(object);
  }

 private:
  mutable base::Mutex mutex_;
  std::unordered_set<uint64_t> objects_ ISOPOOL_GUARDED_BY(mutex_);
};

}  // namespace isopool::client
