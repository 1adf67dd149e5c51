// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "client/transport/worker_link.h"

namespace isopool {

class ReplicatedObjImpl;
class WorkerSlot;

namespace client {

class Pool;
struct WarmUpCall;

/// The warm-up calls of a pool, and the threads that make them on workers that start later, spares
/// included. A worker whose calls have not ended is warmingUp(): the pool gives it no other call.
/// If a call fails, or can't be made, that is logged, and the worker serves nevertheless; a worker
/// that dies of it is replaced like any other. Any thread.
class WarmUps {
 public:
  /// `pool` owns this.
  explicit WarmUps(Pool& pool) : pool_(pool) {}
  ~WarmUps() { close(); }

  /// Workers that start from now on make the call, too. The result is for remove().
  uint64_t add(WarmUpCall call);
  void remove(uint64_t number);
  /// Removes the calls of objects that no longer exist.
  void removeExpired();
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }

  /// Starts the calls on this worker. `slot`: the one that it serves; null for a spare, to which
  /// the environment is not applied. Does not wait, and throws nothing but std::bad_alloc.
  void start(std::shared_ptr<WorkerLink> link, std::shared_ptr<WorkerSlot> slot);
  /// Ends the workers that are being warmed up, and waits for the threads. No thread is started any
  /// more.
  void close();

 private:
  struct Entry {
    uint64_t number;
    std::shared_ptr<const WarmUpCall> call;
  };
  /// The last call that a worker was given. A spare that is introduced after add() is also among
  /// the spares that warmUp() finds afterwards: it must not make the call twice.
  struct Begun {
    std::weak_ptr<WorkerLink> link;
    uint64_t number;
  };
  struct Task {
    std::shared_ptr<WorkerLink> link;
    std::atomic<bool> over{false};
    std::thread thread;
  };

  void beginLocked(std::shared_ptr<WorkerLink> link, std::shared_ptr<WorkerSlot> slot)
      ISOPOOL_REQUIRES(mutex_);
  void run(WorkerLink& link, const std::shared_ptr<WorkerSlot>& slot,
           const std::vector<Entry>& calls);
  void call(WorkerLink& link, const std::shared_ptr<WorkerSlot>& slot, const WarmUpCall& call);

  Pool& pool_;
  base::Mutex mutex_;
  std::vector<Entry> calls_ ISOPOOL_GUARDED_BY(mutex_);
  std::list<Task> tasks_ ISOPOOL_GUARDED_BY(mutex_);
  std::vector<Begun> begun_ ISOPOOL_GUARDED_BY(mutex_);
  uint64_t last_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  bool closed_ ISOPOOL_GUARDED_BY(mutex_) = false;
  std::atomic<size_t> count_{0};  // of calls_
};

}  // namespace client
}  // namespace isopool
