// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/control/supervisor_connection.h"
#include "client/pool/worker_setup.h"
#include "client/transport/worker_link.h"
#include "isopool/call_options.h"
#include "isopool/interpreter.h"
#include "isopool/statistics.h"

namespace isopool {

namespace client {
class AsyncExecutor;
class PoolMigration;
class Pool;
}  // namespace client

/// A slot of a pool, which users see as an Interpreter: the worker that serves it now, and its
/// load. `pool` and `index` are constant; the rest is guarded by the pool's mutex. May outlive the
/// pool; then it has no worker.
class WorkerSlot {
 public:
  std::weak_ptr<client::Pool> pool;
  uint32_t index = 0;
  std::shared_ptr<client::WorkerLink> channel;  ///< null or dead until a replacement is assigned
  uint32_t users = 0;                           ///< sessions, streams and calls
  uint32_t inFlight = 0;  ///< calls of the pool: at most two, one running and one waiting behind it
  std::string quarantine;  ///< why the slot stays empty; cleared when it gets a worker
  uint64_t restarts = 0;
  uint64_t completedBefore = 0;  ///< calls that earlier workers of the slot completed
  std::optional<WorkerLost::Death> lastDeath;
};

namespace client {

/// A manager's workers, and the choice of the worker for each call. Any thread. Sessions and
/// replicated objects share ownership of it; it works only until its manager calls close().
///
/// A call goes to the worker that served this thread last if that worker is idle, else to an idle
/// one, else, if calls are short, behind the running call of the least busy worker, so that the
/// worker finds it when that call has ended; else it waits in line. The line is first come, first
/// served. While the worker has another call, a place that becomes free goes to the line once in
/// 40 us at most: in between, a thread that comes right back gets it, because waking another thread
/// takes longer than a short call. So the n-th thread in line waits n times 40 us, and no longer
/// than n calls where calls take longer. A call that was sent to a busy worker and has not started
/// moves to the worker that becomes free first, see PoolMigration.
///
/// A worker is busy with everything that this process has requested of it: calls, steps of
/// sessions, and work that no thread waits for (released handles, closed streams, unloads).
///
/// When a worker dies, calls avoid its slot until the supervisor assigns a replacement. When the
/// connection to the supervisor is lost, members that need a worker throw SupervisorLost. In a
/// forked child they throw Error. A member with a deadline waits until then; without one it waits
/// without limit. The mutex is never held while a worker or the supervisor is waited for.
class Pool final : public PoolEvents, public std::enable_shared_from_this<Pool> {
 public:
  /// `owner`: what users call the owner of the pool, for messages, e.g. "InterpreterManager"; a
  /// string constant. No worker exists before open().
  Pool(std::shared_ptr<SupervisorConnection> connection, std::shared_ptr<Environment> environment,
       std::shared_ptr<ModuleSources> modules, const char* owner);
  ~Pool() override;

  /// Asks the supervisor for the workers and waits until all of them serve and the environment was
  /// applied to them. Call once, before other threads have the pool; after an exception call
  /// close(). Throws SupervisorLost, PoolUnavailable, DeadlineExceeded after two minutes (not with
  /// noKill()), and what the environment throws.
  void open(uint32_t workers);
  /// Call when the manager ends: calls in flight fail, and every later use throws Error. Waits for
  /// the executor's threads and their callbacks, and, if this was the connection's last owner, for
  /// the supervisor's end. Has no effect in a forked child.
  void close();

  /// A place for one call at one worker; the destructor gives it back, which serves the line. The
  /// worker may die meanwhile: the reservation stays valid, and requests to the channel find the
  /// death. Used by one thread at a time.
  class WorkerReservation {
   public:
    WorkerReservation(std::shared_ptr<Pool> pool, std::shared_ptr<WorkerSlot> slot,
                      std::shared_ptr<WorkerLink> channel, bool idle);
    WorkerReservation(WorkerReservation&& other) noexcept = default;
    ~WorkerReservation();
    /// Lives as long as the reservation.
    WorkerLink& channel() const { return *channel_; }
    const std::shared_ptr<WorkerSlot>& slot() const { return slot_; }
    /// True if the worker had nothing to do when the place was reserved.
    bool idle() const { return idle_; }

   private:
    std::shared_ptr<Pool> pool_;
    std::shared_ptr<WorkerSlot> slot_;
    std::shared_ptr<WorkerLink> channel_;
    bool idle_;
  };

  /// Waits for a place at a worker. Throws DeadlineExceeded, PoolUnavailable (every slot is in
  /// quarantine), SupervisorLost, Error (the pool is closed, or this is a forked child).
  /// `accepted`: the call was accepted earlier, so it is not refused because the supervisor is
  /// about to end.
  WorkerReservation reserveWorker(const Deadline& deadline, bool accepted = false);

  /// Call when a worker has ended a request that is not a call of the pool: calls in line may be
  /// waiting for that worker.
  void stepEnded() {
    if (inLine_.load(std::memory_order_relaxed) != 0) serveWaiters();
  }

  /// Chooses the slot for a new session: the one whose worker is the least occupied, and among
  /// equals the one with the fewest users. The session counts as its user until releaseUser(). The
  /// slot may have no worker now, see liveChannel(). Does not wait. Throws what check() throws, and
  /// SupervisorLost if the supervisor is about to end.
  std::shared_ptr<WorkerSlot> acquireUser();
  /// Users of a slot that the caller has chosen. Each addUser() needs a releaseUser().
  void addUser(WorkerSlot& slot);
  void releaseUser(WorkerSlot& slot);
  /// Counts as a user of a slot as long as it lives.
  class User {
   public:
    User(Pool& pool, WorkerSlot& slot) : pool_(pool), slot_(slot) { pool_.addUser(slot_); }
    ~User() { pool_.releaseUser(slot_); }
    User(const User&) = delete;
    User& operator=(const User&) = delete;

   private:
    Pool& pool_;
    WorkerSlot& slot_;
  };
  /// Lives from before a call on every worker begins until it has ended: a supervisor that is about
  /// to end waits for it. The constructor throws what check() throws, and SupervisorLost if the
  /// supervisor is about to end.
  class Broadcast {
   public:
    explicit Broadcast(Pool& pool);
    ~Broadcast();
    Broadcast(const Broadcast&) = delete;
    Broadcast& operator=(const Broadcast&) = delete;

   private:
    Pool& pool_;
  };
  /// The slot's living worker; waits for a replacement of a dead one. Throws DeadlineExceeded,
  /// PoolUnavailable, SupervisorLost, Error.
  std::shared_ptr<WorkerLink> liveChannel(WorkerSlot& slot, const Deadline& deadline);
  /// The same without waiting; null if there is none, and in a forked child.
  std::shared_ptr<WorkerLink> currentLink(const WorkerSlot& slot);
  /// The slot that this worker serves; null if it serves none (any more).
  std::shared_ptr<WorkerSlot> slotServedBy(const WorkerLink& channel);
  /// What the pool's workers need before they run calls.
  WorkerSetup& setup() { return setup_; }

  /// From now on only the first `count` slots take calls and new sessions; the others finish what
  /// they have. `count` is between 1 and the number of slots. Throws what check() throws.
  void limitSlots(size_t count);

  /// Constant after open().
  const std::vector<std::shared_ptr<WorkerSlot>>& slots() const { return slots_; }
  /// Null after close() and in a forked child. The caller may become the last owner.
  std::shared_ptr<SupervisorConnection> connection();
  /// Throws Error if the pool is closed or this is a forked child, and SupervisorLost.
  void check();
  /// The same after a worker's death was seen: its supervisor may have died with it. `started`: the
  /// call in question had started.
  void checkAfterDeath(bool started);

  /// The queue and the threads of asynchronous calls; created by the first use. Throws what check()
  /// throws, and SupervisorLost if the supervisor is about to end.
  std::shared_ptr<AsyncExecutor> executor();
  /// True if no worker is killed and no call times out for being slow, see docs/debugging.md.
  bool noKill() const { return noKill_; }
  /// The figures of one moment; those of the workers are their own, untrusted. Does not wait.
  /// Throws what check() throws.
  PoolStatistics statistics();

  /// Call when a call is made again on another worker, unseen by its caller.
  void countRerun() { callsRerun_.fetch_add(1, std::memory_order_relaxed); }
  /// Updates the average time of a call, from before its request until its answer, which decides
  /// whether calls are short.
  void noteServiceTime(std::chrono::nanoseconds time);
  /// Null if the number of the program's calls in flight is not limited.
  const std::shared_ptr<CallLimit>& callLimit() const { return callLimit_; }
  /// Counted since the pool was opened.
  uint64_t callsRerun() const { return callsRerun_.load(); }
  uint64_t workersReplaced() const { return workersReplaced_.load(); }

  // PoolEvents, for the control thread.

  void workerAssigned(uint32_t slot, std::shared_ptr<WorkerLink> channel) override;
  void workerDied(uint32_t slot, const WorkerLost::Death& death) override;
  void slotQuarantined(uint32_t slot, std::string text) override;
  void supervisorLost(std::string text) override;
  bool drain(const std::string& text) override;

 private:
  friend class PoolMigration;
  struct Waiter {
    base::Condition wake;
    std::shared_ptr<WorkerSlot> slot;
  };

  /// In a forked child throws Error: a thread of the parent may hold the mutex.
  base::Mutex& ownMutex() ISOPOOL_RETURNS(mutex_);
  /// Throws Error if the pool is closed, and SupervisorLost with `started`.
  void checkLocked(bool started = false) ISOPOOL_REQUIRES(mutex_);
  void admitLocked() ISOPOOL_REQUIRES(mutex_);
  bool drainedLocked() const ISOPOOL_REQUIRES(mutex_);
  std::shared_ptr<SupervisorConnection> endDrainLocked() ISOPOOL_REQUIRES(mutex_);
  std::shared_ptr<WorkerSlot> pickLocked(const WorkerSlot* leaving = nullptr)
      ISOPOOL_REQUIRES(mutex_);
  WorkerReservation reserveLocked(std::shared_ptr<WorkerSlot> slot) ISOPOOL_REQUIRES(mutex_);
  static void takeLocked(WorkerSlot& slot);
  void leaveLocked(WorkerSlot& slot) ISOPOOL_REQUIRES(mutex_);
  bool leavesPlaceFree(const WorkerSlot& slot) const ISOPOOL_REQUIRES(mutex_);
  void awaitPlace(Waiter& waiter, const Deadline& deadline, base::MutexLock& lock)
      ISOPOOL_REQUIRES(mutex_);
  void lookAtHeld(base::MutexLock& lock) ISOPOOL_REQUIRES(mutex_);
  void serveMigrationsLocked() ISOPOOL_REQUIRES(mutex_);
  void serveWaitersLocked() ISOPOOL_REQUIRES(mutex_);
  void serveWaiters();
  void countLineLocked() ISOPOOL_REQUIRES(mutex_);
  bool reservePlace(PoolMigration& migration);
  void forgetPlace(PoolMigration& migration);
  std::optional<WorkerReservation> takeReserved(PoolMigration& migration);
  void endReservation(WorkerSlot& slot);
  void executorHasDrained();

  const uint32_t generation_;
  const char* const owner_;
  const bool noKill_;
  const bool shared_;  // the workers run calls of other programs, too
  const std::shared_ptr<CallLimit> callLimit_;

  base::Mutex mutex_;        // guards the slots, too
  base::Condition changed_;  // a slot got a worker, or will not get one
  std::shared_ptr<SupervisorConnection> connection_ ISOPOOL_GUARDED_BY(mutex_);
  base::PoolId id_;  // set by open()
  bool closed_ ISOPOOL_GUARDED_BY(mutex_) = false;
  std::string lost_ ISOPOOL_GUARDED_BY(mutex_);
  /// If the supervisor is about to end: why new calls are refused, and whether calls that were
  /// accepted before are still under way.
  std::string refusal_ ISOPOOL_GUARDED_BY(mutex_);
  bool draining_ ISOPOOL_GUARDED_BY(mutex_) = false;
  bool executorDrained_ ISOPOOL_GUARDED_BY(mutex_) = false;
  /// Calls on every worker that have not ended.
  uint32_t broadcasts_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<WorkerSlot>> slots_;  // constant after open()
  /// Only so many slots, the first ones, get calls and new sessions.
  size_t usedSlots_ ISOPOOL_GUARDED_BY(mutex_) = 0;

  std::list<Waiter*> waiters_ ISOPOOL_GUARDED_BY(mutex_);
  /// Calls that look for a place; served before waiters_.
  std::list<PoolMigration*> migrations_ ISOPOOL_GUARDED_BY(mutex_);
  std::atomic<size_t> inLine_{0};  // the length of both lists together
  /// When a thread in line got a place.
  Clock::time_point lastHandOver_ ISOPOOL_GUARDED_BY(mutex_);
  std::shared_ptr<AsyncExecutor> executor_ ISOPOOL_GUARDED_BY(mutex_);
  std::atomic<int64_t> serviceNanoseconds_{0};
  std::atomic<uint64_t> callsRerun_{0};
  std::atomic<uint64_t> workersReplaced_{0};

  WorkerSetup setup_;
};

}  // namespace client
}  // namespace isopool
