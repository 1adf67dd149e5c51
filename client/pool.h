// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/module_sources.h"
#include "client/replica_tracker.h"
#include "client/supervisor_connection.h"
#include "client/worker_link.h"
#include "isopool/call_options.h"
#include "isopool/environment.h"
#include "isopool/interpreter.h"
#include "isopool/statistics.h"

namespace isopool {

namespace client {
class AsyncExecutor;
class Migration;
class Pool;
}  // namespace client

/// A slot of a pool, behind an Interpreter: the worker that serves it now, and how much it has to
/// do. Guarded by the pool's mutex.
class WorkerSlot {
 public:
  std::weak_ptr<client::Pool> pool;
  uint32_t index = 0;
  std::shared_ptr<client::WorkerLink> channel;  ///< null or dead while a replacement is on its way
  uint32_t users = 0;                           ///< sessions and calls
  uint32_t inFlight = 0;  ///< calls of the pool: at most two, one running and one waiting behind it
  std::string quarantine;  ///< why it stays empty; cleared by the next worker
  uint64_t restarts = 0;
  uint64_t completedBefore = 0;  ///< calls that earlier workers of it completed
  std::optional<WorkerLost::Death> lastDeath;
};

namespace client {

/// A manager's workers and who gets which. Any thread. Sessions and replicated objects keep it; it
/// works only as long as its manager lives (close()).
///
/// A call goes to the worker that served this thread last if that one is idle, else to an idle one,
/// else, if calls are short, behind the running call of the least busy one, so that the worker
/// finds it when it is done; else it waits in line. The line is first come, first served. While the
/// worker has another call, a place that becomes free goes to the line once in 40 us at most: in
/// between a thread that comes right back has it, for to wake another one takes longer than a short
/// call. So the n-th in line waits for n times that, and no longer than n calls where these are
/// longer. A call that was sent to a busy worker and has not started moves to the worker that is
/// free first, see Migration.
///
/// Busy is a worker with anything that this process asked of it: calls, steps of sessions, and what
/// no thread waits for (released handles, closed streams, unloads).
class Pool final : public PoolEvents, public std::enable_shared_from_this<Pool> {
 public:
  /// `owner` is what users call what this belongs to.
  Pool(std::shared_ptr<SupervisorConnection> connection, std::shared_ptr<Environment> environment,
       std::shared_ptr<ModuleSources> modules, const char* owner);
  ~Pool() override;

  /// Asks for the workers and waits until all serve. Throws SupervisorLost, PoolUnavailable.
  void open(uint32_t workers);
  /// The manager ends: calls in flight fail, and every later use throws Error.
  void close();

  /// A place in a worker for one call, given back at the end of its life.
  class WorkerReservation {
   public:
    WorkerReservation(std::shared_ptr<Pool> pool, std::shared_ptr<WorkerSlot> slot,
                      std::shared_ptr<WorkerLink> channel, bool idle);
    WorkerReservation(WorkerReservation&& other) noexcept = default;
    ~WorkerReservation();
    WorkerLink& channel() const { return *channel_; }
    const std::shared_ptr<WorkerSlot>& slot() const { return slot_; }
    /// True if the worker had nothing to do when it was reserved.
    bool idle() const { return idle_; }

   private:
    std::shared_ptr<Pool> pool_;
    std::shared_ptr<WorkerSlot> slot_;
    std::shared_ptr<WorkerLink> channel_;
    bool idle_;
  };

  /// Waits for a worker. Throws DeadlineExceeded, PoolUnavailable, SupervisorLost, Error.
  /// `accepted`: the call was made before, and is not refused because the supervisor is about to
  /// end.
  WorkerReservation reserveWorker(const Deadline& deadline, bool accepted = false);

  /// A worker ended what is no call of the pool: calls may wait for that.
  void stepEnded() {
    if (inLine_.load(std::memory_order_relaxed) != 0) serveWaiters();
  }

  /// The slot for a new session, counted as its user: the one whose worker is occupied the least,
  /// and among these the one with the fewest users. releaseUser() ends that.
  std::shared_ptr<WorkerSlot> acquireUser();
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
  /// A call on every worker, from before it begins until it has ended: a supervisor that is told to
  /// end waits for it. Throws what check() throws, and SupervisorLost if the supervisor is about to
  /// end.
  class Broadcast {
   public:
    explicit Broadcast(Pool& pool);
    ~Broadcast();
    Broadcast(const Broadcast&) = delete;
    Broadcast& operator=(const Broadcast&) = delete;

   private:
    Pool& pool_;
  };
  /// The slot's living worker; waits for its replacement.
  std::shared_ptr<WorkerLink> liveChannel(WorkerSlot& slot, const Deadline& deadline);
  /// The same without waiting; may be null.
  std::shared_ptr<WorkerLink> currentLink(const WorkerSlot& slot);

  /// Applies the environment to a worker that it has not been applied to.
  void configure(WorkerSlot& slot, const std::shared_ptr<WorkerLink>& channel);
  void configure(WorkerLink& channel);
  /// Gives the worker the registered modules that it has not been given. To be called before each
  /// request that may import one.
  void syncModules(WorkerLink& channel, const Deadline& deadline) {
    if (channel.taughtModules.load(std::memory_order_acquire) != modules_->count()) {
      teachNewModules(channel, deadline);
    }
  }
  /// Makes the worker unpickle the object if it has not, and says so to `lives`, if there is one.
  /// Throws RemoteError, DeadlineExceeded. False if `migration` has found a worker that is free
  /// first, where the call is to go on.
  bool define(WorkerLink& channel, const ObjectDefinition& definition, const Deadline& deadline,
              ReplicaTracker* replicas, Migration* migration = nullptr);
  /// Notes that the worker has unloaded the object, so that define() defines it again.
  void forget(WorkerLink& channel, uint64_t object);
  /// Has the worker let the object go. Objs that refer to it keep it there.
  void unload(WorkerLink& channel, uint64_t object);

  /// Only the first `count` slots take calls and new sessions from now on; the others end what they
  /// have.
  void limitSlots(size_t count);

  const std::vector<std::shared_ptr<WorkerSlot>>& slots() const { return slots_; }
  /// Null once the manager is gone, and in a forked process.
  std::shared_ptr<SupervisorConnection> connection();
  /// Throws Error if the pool can't serve this process any more.
  void check();
  /// The same where a worker's death was seen, which may be that of its supervisor. `started`: the
  /// call that asks had started.
  void checkAfterDeath(bool started);

  /// Where asynchronous calls wait and run; made now if there is none. Throws as check(), and
  /// SupervisorLost if the supervisor is about to end.
  std::shared_ptr<AsyncExecutor> executor();
  /// True if nothing is to be killed or given up for being slow, see docs/debugging.md.
  bool noKill() const { return noKill_; }
  PoolStatistics statistics();

  void countRerun() { callsRerun_.fetch_add(1, std::memory_order_relaxed); }
  void noteServiceTime(std::chrono::nanoseconds time);
  /// Null if the program may have any number of calls in flight.
  const std::shared_ptr<CallLimit>& callLimit() const { return callLimit_; }
  uint64_t callsRerun() const { return callsRerun_.load(); }
  uint64_t workersReplaced() const { return workersReplaced_.load(); }

  void workerAssigned(uint32_t slot, std::shared_ptr<WorkerLink> channel) override;
  void workerDied(uint32_t slot, const WorkerLost::Death& death) override;
  void slotQuarantined(uint32_t slot, std::string text) override;
  void supervisorLost(std::string text) override;
  bool drain(const std::string& text) override;

 private:
  friend class Migration;
  struct Waiter {
    std::condition_variable wake;
    std::shared_ptr<WorkerSlot> slot;
  };

  /// The pool's lock, if it can serve this process: a forked one must not wait for a lock that a
  /// thread of its parent may hold. Throws Error, and SupervisorLost with `started`.
  std::unique_lock<std::mutex> lockUsable(bool started = false);
  void checkLocked(bool started = false);
  void admitLocked();
  bool drainedLocked() const;
  void endDrain(std::unique_lock<std::mutex>& lock);
  std::shared_ptr<WorkerSlot> pickLocked(const WorkerSlot* leaving = nullptr);
  WorkerReservation reserveLocked(std::shared_ptr<WorkerSlot> slot);
  static void takeLocked(WorkerSlot& slot);
  void leaveLocked(WorkerSlot& slot);
  bool leavesPlaceFree(const WorkerSlot& slot) const;
  void lookAtHeld(std::unique_lock<std::mutex>& lock);
  void serveMigrationsLocked();
  void serveWaitersLocked();
  void serveWaiters();
  void countLineLocked();
  bool reservePlace(Migration& migration);
  void forgetPlace(Migration& migration);
  std::optional<WorkerReservation> takeReserved(Migration& migration);
  void endReservation(WorkerSlot& slot);
  void teachNewModules(WorkerLink& channel, const Deadline& deadline);

  const uint32_t generation_;
  const std::shared_ptr<Environment> environment_;
  const std::shared_ptr<ModuleSources> modules_;
  const char* const owner_;
  const bool noKill_;
  const bool shared_;  // other programs' calls run on our workers, too
  const std::shared_ptr<CallLimit> callLimit_;

  std::mutex mutex_;
  std::condition_variable changed_;  // a slot got a worker, or nothing will change any more
  std::shared_ptr<SupervisorConnection> connection_;
  base::PoolId id_;
  bool closed_ = false;
  std::string lost_;
  /// The supervisor is about to end: why no further call is taken, and whether those that were
  /// taken are still to be waited for.
  std::string refusal_;
  bool draining_ = false;
  bool executorDrained_ = false;
  uint32_t broadcasts_ = 0;  // calls on every worker that have not ended
  std::vector<std::shared_ptr<WorkerSlot>> slots_;
  size_t usedSlots_ = 0;  // the balancer gives work to the first ones only

  std::list<Waiter*> waiters_;
  std::list<Migration*> migrations_;  // that look for a place; before waiters_
  std::atomic<size_t> inLine_{0};     // of both
  Clock::time_point lastHandOver_;    // when a thread in line got a place
  std::shared_ptr<AsyncExecutor> executor_;
  std::atomic<int64_t> serviceNanoseconds_{0};
  std::atomic<uint64_t> callsRerun_{0};
  std::atomic<uint64_t> workersReplaced_{0};
};

}  // namespace client
}  // namespace isopool
