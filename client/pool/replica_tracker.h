// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "client/program/process_fork.h"
#include "client/transport/worker_link.h"

namespace isopool::client {

/// For one replicated object: which life of each slot's worker has it, and whether the program has
/// restored its state there. When a worker dies, the state that calls left in the object is lost.
/// The program's callback may restore it after the object was rebuilt in the replacement. Members
/// can be called by any thread.
class ReplicaTracker {
 public:
  /// Runs without a lock on the thread whose use of the object comes first. Its own uses of the
  /// object do not wait for it, see Restoring.
  using Callback = std::function<void(size_t slot)>;

  /// `slots`: of the pool. Slot numbers below are smaller than that.
  explicit ReplicaTracker(size_t slots) : replicas_(slots) {}

  /// The worker has the object from now on. Counted by rebuilt() if an earlier life of the slot's
  /// worker had it. Call before another thread can find the object there.
  void begun(const WorkerLink& channel);
  /// The slot's worker unloads the object on purpose: the next begun() is not counted.
  void unloaded(uint32_t slot);
  /// Call before each use of the object in a worker that has it. If this is the first use since the
  /// object was rebuilt, calls the callback; uses by other threads wait meanwhile. Throws what the
  /// callback throws; then the next use calls it again. Returns without the callback if the worker
  /// is dead or the deadline has passed: the use that follows finds that.
  void restore(const WorkerLink& channel, const Deadline& deadline) {
    if (unrestored_.load(std::memory_order_acquire) != 0) restoreNow(channel, deadline);
  }

  /// How often the object was made in a worker that replaced one that had it.
  uint64_t rebuilt() const { return rebuilt_.load(std::memory_order_relaxed); }
  /// Sets the callback; empty: none. It is called for objects that are rebuilt from now on. Throws
  /// Error in a forked child, where no object of the parent is rebuilt.
  void onRebuilt(Callback callback);

  /// While it lives, the calling thread is inside a callback: then its uses of any replicated
  /// object neither call callbacks nor wait for them. A thread that works for such a thread needs
  /// one, too.
  class Restoring {
   public:
    explicit Restoring(bool yes = true);
    ~Restoring();
    Restoring(const Restoring&) = delete;
    Restoring& operator=(const Restoring&) = delete;

   private:
    bool outer_;
  };
  static bool thisThreadRestores();

 private:
  enum class State : uint8_t { kWhole, kRebuilt, kBeingRestored };
  struct Life {
    /// WorkerLink::number(). 0: no worker of the slot has had the object since it was unloaded.
    uint64_t link = 0;
    State state = State::kWhole;
  };

  void restoreNow(const WorkerLink& channel, const Deadline& deadline);
  bool beginRestoring(const WorkerLink& channel, const Deadline& deadline,
                      std::shared_ptr<const Callback>& callback);
  void endRestoring(const WorkerLink& channel, State state);
  void changedLocked() ISOPOOL_REQUIRES(mutex_);

  const uint32_t generation_ = forkGeneration();
  base::Mutex mutex_;
  base::Condition changed_;
  std::vector<Life> replicas_ ISOPOOL_GUARDED_BY(mutex_);
  std::shared_ptr<const Callback> callback_ ISOPOOL_GUARDED_BY(mutex_);
  std::atomic<uint32_t> unrestored_{0};
  std::atomic<uint64_t> rebuilt_{0};
};

}  // namespace isopool::client
