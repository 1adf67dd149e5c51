// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/control/supervisor_connection.h"
#include "client/pool/call_reports.h"
#include "client/pool/model_figures.h"
#include "client/pool/pool_contents.h"
#include "client/pool/reconnection.h"
#include "client/pool/warm_ups.h"
#include "client/pool/worker_setup.h"
#include "client/transport/call_limit.h"
#include "client/transport/worker_link.h"
#include "isopool/call_options.h"
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
  /// The connection of `channel` is lost: its calls end, and none begins, although the link may not
  /// have ended yet. Until the slot gets a worker of the next connection.
  bool lost = false;
  uint64_t restarts = 0;
  uint64_t completedBefore = 0;  ///< calls that earlier workers of the slot completed
  std::optional<WorkerLost::Death> lastDeath;
};

namespace client {

/// The right to enter a pool's line next. One thread has it at a time for the calls of one queue,
/// from the moment when it takes a call from there.
using EntryTurn = std::unique_lock<base::Mutex>;

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
/// connection to the supervisor is lost, members that need a worker throw SupervisorLost; if the
/// pool reconnects(), they first wait for its next connection, PoolSettings::reconnect at most. In
/// a forked child they throw Error. A member with a deadline waits until then; without one it waits
/// without limit. The mutex is never held while a worker or the supervisor is waited for.
class Pool final : public PoolEvents, public std::enable_shared_from_this<Pool> {
 public:
  /// `owner`: what users call the owner of the pool, for messages, e.g. "InterpreterManager"; a
  /// string constant. No worker exists before open().
  Pool(std::shared_ptr<SupervisorConnection> connection, PoolSettings settings, EventLog eventLog,
       std::shared_ptr<Environment> environment, std::shared_ptr<ModuleSources> modules,
       const char* owner);
  ~Pool() override;

  /// Asks the supervisor for the workers and waits until all of them serve and the environment was
  /// applied to them; of a shared supervisor until the first does, and then a second at most for
  /// the others. Call once, before other threads have the pool; after an exception call close().
  /// Throws SupervisorLost, PoolUnavailable, DeadlineExceeded after `patience` (not with
  /// noKill()), and what the environment throws.
  void open(std::chrono::milliseconds patience = std::chrono::minutes(2));
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
  /// about to end. `turn`: ends when the call has a place at a worker or in the line, so that the
  /// next call of the same queue comes after it; null: the call is of no queue. `again`: it had a
  /// place before, and waits in front of the others.
  WorkerReservation reserveWorker(const Deadline& deadline, bool accepted = false,
                                  CancellationToken* cancellation = nullptr,
                                  EntryTurn* turn = nullptr, bool again = false);

  /// Call when a worker has ended a request that is not a call of the pool: calls in line may be
  /// waiting for that worker.
  void stepEnded() {
    if (inLine_.load(std::memory_order_relaxed) != 0) serveWaiters();
  }

  /// Waits while the supervisor is about to end or was lost, if the pool reconnects(). Throws
  /// SupervisorLost, DeadlineExceeded, Error.
  void admit(const Deadline& deadline);
  /// Call when a use of `channel` that may be made again has thrown SupervisorLost, and the channel
  /// has not ended. If the supervisor of the channel is about to end or is lost, and every accepted
  /// call has ended there, waits as admit() and returns true: make the use again. False if that is
  /// not why it threw.
  bool awaitNextConnection(const WorkerLink& channel, const Deadline& deadline,
                           CancellationToken* cancellation = nullptr);
  /// Call while SupervisorLost is handled that such a use of `channel` has thrown, whether the
  /// channel has ended or not. Returns if the use may be made again; else throws SupervisorLost.
  void awaitRetry(const WorkerLink& channel, const Deadline& deadline);
  /// Chooses the slot for a new session: the one whose worker is the least occupied, and among
  /// equals the one with the fewest users. The session counts as its user until releaseUser(). The
  /// slot may have no worker now, see liveChannel(). Does not wait. Throws what check() throws.
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
  /// to end waits for it. The constructor waits and throws as admit().
  class Broadcast {
   public:
    Broadcast(Pool& pool, const Deadline& deadline);
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
  /// True if the pool gets another connection when it has lost its shared supervisor.
  bool reconnects() const { return shared_ && settings_.reconnect.count() != 0; }
  /// Waits until the pool has another connection than `former`. False if it does not get one in
  /// time, or is closed.
  bool awaitConnectionAfter(const SupervisorConnection& former);
  /// For Reconnection: true if the pool has lost its connection and is not closed.
  bool lacksConnection();
  /// For Reconnection: gives the supervisor everything that the workers had, and asks it for new
  /// workers. Throws SupervisorLost, Error if the pool is closed; then the pool is as before.
  void attach(const std::shared_ptr<SupervisorConnection>& next);
  SpareWorker spare() const {
    return spareHasObjects_ ? SpareWorker::kHasObjects : SpareWorker::kEmpty;
  }
  /// The figures of its models.
  PoolModels& models() { return models_; }
  /// What the program has given to the workers.
  PoolContents& contents() { return contents_; }
  /// What the pool's workers need before they run calls.
  WorkerSetup& setup() { return setup_; }
  /// Calls that workers make before they take others.
  WarmUps& warmUps() { return warmUps_; }
  /// Call when a worker's warm-up has ended: calls may be waiting for it.
  void workerIsWarm();

  /// From now on only the first `count` slots take calls and new sessions; the others finish what
  /// they have. `count` is between 1 and the number of slots. Throws what check() throws.
  void limitSlots(size_t count);

  /// Constant after open().
  const std::vector<std::shared_ptr<WorkerSlot>>& slots() const { return slots_; }
  /// Null after close() and in a forked child. The caller may become the last owner.
  std::shared_ptr<SupervisorConnection> connection();
  /// Throws Error if the pool is closed or this is a forked child, and SupervisorLost unless the
  /// pool may soon have another connection.
  void check();
  /// The same for a use that was made of this worker, which has died: if its supervisor is gone,
  /// throws SupervisorLost with `started`, also if the pool may soon have another connection.
  /// `consequence`: for the text.
  void checkSupervisorOf(WorkerLink& channel, bool started, const char* consequence = "");
  /// The same for a use that may be made again on another worker: throws nothing if the pool may
  /// soon have another connection.
  void checkForRetry(WorkerLink& channel);

  /// The queue and the threads of asynchronous calls; created by the first use. Throws what check()
  /// throws, and SupervisorLost if the supervisor is about to end and the pool ends with it.
  std::shared_ptr<AsyncExecutor> executor();
  const PoolSettings& settings() const { return settings_; }
  /// The settings that this process decides, then those that the supervisor has reported. Throws
  /// what check() throws.
  std::vector<PoolSetting> settingsInForce();
  /// True if no worker is killed and no call times out for being slow, see docs/debugging.md.
  bool noKill() const { return settings_.noKill; }
  /// The figures of one moment; those of the workers are their own, untrusted. Does not wait.
  /// Throws what check() throws.
  PoolStatistics statistics();

  /// Call when a call is made again on another worker, unseen by its caller.
  void countRerun() { callsRerun_.fetch_add(1, std::memory_order_relaxed); }
  /// Updates the average time of a call, from before its request until its answer, which decides
  /// whether calls are short.
  void noteServiceTime(std::chrono::nanoseconds time);
  /// Null with a private supervisor.
  const std::shared_ptr<CallLimit>& callLimit() const { return callLimit_; }
  /// Counted since the pool was opened.
  uint64_t callsRerun() const { return callsRerun_.load(); }
  uint64_t workersReplaced() const { return workersReplaced_.load(); }
  uint64_t reattached() const { return reattached_.load(); }

  // PoolEvents, for the control thread.

  void workerIntroduced(const std::shared_ptr<WorkerLink>& channel) override;
  void workerAssigned(uint32_t slot, std::shared_ptr<WorkerLink> channel) override;
  void workerDied(uint32_t slot, const WorkerLost::Death& death, bool asked) override;
  void slotQuarantined(uint32_t slot, std::string text) override;
  void supervisorLost(uint64_t connection, std::string text) override;
  bool drain(const std::string& text) override;
  void reportCalls() override;
  const EventLog& eventLog() const override { return eventLog_; }

 private:
  friend class PoolMigration;
  struct Waiter {
    base::Condition wake;
    std::shared_ptr<WorkerSlot> slot;
    const WorkerLink* configured = nullptr;  ///< by the waiting thread; null: none
    /// A function of the program runs on the waiting thread, and may call: it gets no place now.
    bool away = false;
  };

  /// Holds the mutex while something ends for which a drain waits. The destructor releases the
  /// mutex and, if nothing else is under way, calls SupervisorConnection::drained().
  class ISOPOOL_THREAD_SAFETY(scoped_lockable) Ending {
   public:
    explicit Ending(Pool& pool) ISOPOOL_ACQUIRES(pool.mutex_);
    ~Ending() ISOPOOL_RELEASES();
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;

   private:
    Pool& pool_;
  };

  /// In a forked child throws Error: a thread of the parent may hold the mutex.
  base::Mutex& ownMutex() ISOPOOL_RETURNS(mutex_);
  void checkLocked() ISOPOOL_REQUIRES(mutex_);
  void checkAdmittedLocked() ISOPOOL_REQUIRES(mutex_);
  void admitLocked(const Deadline& deadline, CancellationToken* cancellation, base::MutexLock& lock)
      ISOPOOL_REQUIRES(mutex_);
  void lookForConnection(const Deadline& deadline, CancellationToken* cancellation,
                         base::MutexLock& lock) ISOPOOL_REQUIRES(mutex_);
  void loseSlotsLocked(const std::string& text) ISOPOOL_REQUIRES(mutex_);
  bool mayReconnectLocked() const ISOPOOL_REQUIRES(mutex_);
  void awayLocked() ISOPOOL_REQUIRES(mutex_);
  bool drainedLocked() const ISOPOOL_REQUIRES(mutex_);
  std::shared_ptr<SupervisorConnection> endDrainLocked() ISOPOOL_REQUIRES(mutex_);
  std::shared_ptr<WorkerSlot> pickLocked(const WorkerSlot* leaving,
                                         const WorkerLink* configured = nullptr)
      ISOPOOL_REQUIRES(mutex_);
  WorkerReservation reserveLocked(std::shared_ptr<WorkerSlot> slot) ISOPOOL_REQUIRES(mutex_);
  void setUpShared(const Deadline& deadline);
  std::shared_ptr<WorkerLink> awaitWorker(std::span<WorkerSlot* const> slots,
                                          const Deadline& deadline);
  static std::string whatItWaitsFor(const std::shared_ptr<SupervisorConnection>& connection);
  static void takeLocked(WorkerSlot& slot);
  void leaveLocked(WorkerSlot& slot) ISOPOOL_REQUIRES(mutex_);
  bool leavesPlaceFree(const WorkerSlot& slot) const ISOPOOL_REQUIRES(mutex_);
  void leaveLine(Waiter& waiter);
  void awaitPlace(Waiter& waiter, const Deadline& deadline, CancellationToken* cancellation,
                  base::MutexLock& lock) ISOPOOL_REQUIRES(mutex_);
  bool isTakenBack(CancellationToken& cancellation, base::MutexLock& lock) ISOPOOL_REQUIRES(mutex_);
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
  CallReports::InFlight callsInFlight();

  const uint32_t generation_;
  const char* const owner_;
  const PoolSettings settings_;
  const EventLog eventLog_;
  const bool shared_;  // the workers run calls of other programs, too
  const std::shared_ptr<CallLimit> callLimit_;
  const bool spareHasObjects_;  // see SpareWorker

  base::Mutex mutex_;        // guards the slots, too
  base::Condition changed_;  // a slot got a worker, or will not get one
  std::shared_ptr<SupervisorConnection> connection_ ISOPOOL_GUARDED_BY(mutex_);
  base::PoolId id_ ISOPOOL_GUARDED_BY(mutex_);
  bool closed_ ISOPOOL_GUARDED_BY(mutex_) = false;
  /// Why the connection was lost; empty while there is one.
  std::string lost_ ISOPOOL_GUARDED_BY(mutex_);
  /// Until when uses wait for the next connection.
  Clock::time_point awayUntil_ ISOPOOL_GUARDED_BY(mutex_);
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
  std::atomic<int64_t> serviceNanoseconds_;  // how long a call takes, on average
  std::atomic<size_t> inLine_{0};            // the length of both lists together
  /// When a thread in line got a place.
  Clock::time_point lastHandOver_ ISOPOOL_GUARDED_BY(mutex_);
  std::shared_ptr<AsyncExecutor> executor_ ISOPOOL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> callsRerun_{0};
  std::atomic<uint64_t> workersReplaced_{0};
  std::atomic<uint64_t> reattached_{0};

  WorkerSetup setup_;
  WarmUps warmUps_;
  PoolModels models_;
  CallReports callReports_;
  PoolContents contents_;
  Reconnection reconnection_;
};

}  // namespace client
}  // namespace isopool
