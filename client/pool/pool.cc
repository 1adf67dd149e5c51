// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/pool.h"

#include <algorithm>
#include <new>
#include <tuple>
#include <utility>

#include "base/running_time.h"
#include "base/without_cancellation.h"
#include "client/pool/async_executor.h"
#include "client/pool/pool_migration.h"
#include "client/pool/worker_choice.h"
#include "client/program/process_fork.h"
#include "client/transport/death_text.h"
#include "client/transport/unread_messages.h"
#include "ipc/crash_point.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestSleep(100);
// In ns. Waiting behind a call of up to this length costs less than the gap between two calls.
constexpr int64_t kShortCall = 1'000'000;
// Assumed until calls have ended: the first ones may be long, and a worker runs its calls in order.
constexpr int64_t kFirstCalls = 2 * kShortCall;
// For this time after a thread in line got a place, a place that becomes free is left to the thread
// that comes first: mostly the one that had the place.
constexpr std::chrono::microseconds kBetweenHandOvers(40);

thread_local const Pool* lastPool = nullptr;
thread_local uint32_t lastSlot = 0;
bool lives(const WorkerSlot& slot) { return slot.channel && !slot.lost && !slot.channel->ended(); }
// `configured`: the worker to which the caller's thread applies the environment, which may itself
// use the worker before its warm-up; null for every other caller.
bool serves(const WorkerSlot& slot, const WorkerLink* configured = nullptr) {
  return lives(slot) && (!slot.channel->warmingUp() || slot.channel.get() == configured);
}

// A call that is tried again has no turn any more.
void endTurn(EntryTurn* turn) {
  if (turn != nullptr && turn->owns_lock()) turn->unlock();
}

// A wait for a worker that this program does not hear of, because messages of the supervisor are
// not read: ends as waits for other resources do.
class UnheardOf {
 public:
  // Call before each sleep. `none`: there is no worker that the wait could end with.
  void look(bool none, const std::shared_ptr<SupervisorConnection>& connection) {
    if (!none || !connection || !UnreadMessages::of(connection->number())) return waited_.reset();
    if (!waited_) waited_.emplace();
    if (waited_->look(Clock::now()) < kPayloadPatience) return;
    throw PoolUnavailable(std::string("no worker can serve this program: ") +
                          UnreadMessages::cause());
  }
  // For the text of another error: the cause if this is why there is no worker.
  std::string cause() const {
    return waited_ ? std::string(": ") + UnreadMessages::cause() : std::string();
  }

 private:
  std::optional<base::RunningTime> waited_;
};

}  // namespace

Pool::Pool(std::shared_ptr<SupervisorConnection> connection, PoolSettings settings,
           EventLog eventLog, std::shared_ptr<Environment> environment,
           std::shared_ptr<ModuleSources> modules, const char* owner)
    : generation_(forkGeneration()),
      owner_(owner),
      settings_(std::move(settings)),
      eventLog_(std::move(eventLog)),
      shared_(connection->shared()),
      callLimit_(shared_ ? std::make_shared<CallLimit>(connection->mostCalls()) : nullptr),
      spareHasObjects_(connection->spareHasObjects()),
      connection_(std::move(connection)),
      serviceNanoseconds_(kFirstCalls),
      setup_(*this, std::move(environment), std::move(modules)),
      warmUps_(*this),
      contents_(*this, connection_),
      reconnection_(*this) {}

Pool::~Pool() = default;

void Pool::close() {
  if (generation_ != forkGeneration()) return;
  const base::WithoutCancellation complete;
  std::shared_ptr<SupervisorConnection> connection;
  std::shared_ptr<AsyncExecutor> executor;
  base::PoolId id;
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
    id = id_;
    connection = std::move(connection_);
    executor = std::move(executor_);
    for (Waiter* waiter : waiters_) waiter->wake.notify_all();
  }
  changed_.notify_all();
  reconnection_.close();
  // The supervisor kills the workers, so that it does not take their deaths for failures. What was
  // lent to them comes back when it has reaped them.
  try {
    if (connection) {
      callReports_.send(models_, {}, *connection);
      connection->closePool(id);
    }
  } catch (const std::bad_alloc&) {
    // The workers then live as long as the connection.
  }
  for (const auto& slot : slots_) {
    // Interpreters that outlive the manager keep the slot, but not the link to its worker.
    std::shared_ptr<WorkerLink> channel;
    {
      base::MutexLock lock(mutex_);
      channel = std::move(slot->channel);
    }
    if (channel) channel->markDead();
  }
  warmUps_.close();
  // Last, because callbacks may do anything.
  if (executor) executor->close();
}

base::Mutex& Pool::ownMutex() {
  checkNotForked(generation_);
  return mutex_;
}

std::shared_ptr<AsyncExecutor> Pool::executor() {
  base::MutexLock lock(ownMutex());
  checkAdmittedLocked();
  if (!executor_) {
    executor_ = makeForThisProcess<AsyncExecutor>(slots_.size() * kCallsPerWorker);
    if (!refusal_.empty()) executor_->drain("", nullptr);
  }
  return executor_;
}

std::vector<PoolSetting> Pool::settingsInForce() {
  check();
  std::vector<PoolSetting> all = settings_.own;
  if (const auto supervisor = connection()) {
    for (const auto& [key, value, source] : supervisor->supervisorSettings()) {
      all.push_back({key, value, source});
    }
  }
  return all;
}

// For a slot that no worker serves yet: a worker attaches a program between two calls.
std::string Pool::whatItWaitsFor(const std::shared_ptr<SupervisorConnection>& connection) {
  if (!connection) return " was being started";
  std::shared_ptr<WorkerLink> busiest;
  for (const auto& each : connection->spares()) {
    if (each->othersCalls() == 0) continue;
    if (!busiest || each->runningFor() > busiest->runningFor()) busiest = each;
  }
  if (!busiest) return " was being started";
  const auto time = std::chrono::duration_cast<std::chrono::seconds>(busiest->runningFor());
  return " was not free for this program: the process " + std::to_string(busiest->processId()) +
         " has been running one call of another program for " + std::to_string(time.count()) +
         " s (isopool workers names that program; limits.call_time ends such calls)";
}

// ---- Reservations ----------------------------------------------------------------------------

Pool::WorkerReservation::WorkerReservation(std::shared_ptr<Pool> pool,
                                           std::shared_ptr<WorkerSlot> slot,
                                           std::shared_ptr<WorkerLink> channel, bool idle)
    : pool_(std::move(pool)), slot_(std::move(slot)), channel_(std::move(channel)), idle_(idle) {}

Pool::WorkerReservation::~WorkerReservation() {
  if (slot_) pool_->endReservation(*slot_);
}

// `leaving`: the slot of a waiting call that looks for another one; null for a new call.
// `configured`: of the thread for which the slot is, see serves().
std::shared_ptr<WorkerSlot> Pool::pickLocked(const WorkerSlot* leaving,
                                             const WorkerLink* configured) {
  const bool callsAreShort = serviceNanoseconds_.load(std::memory_order_relaxed) < kShortCall;
  std::optional<size_t> preferred;
  if (lastPool == this) preferred = lastSlot;
  const uint32_t most = callsPerWorker(callsAreShort);
  const auto chosen = chooseWorker(usedSlots_, preferred, most, [&](size_t index) {
    const WorkerSlot& slot = *slots_[index];
    WorkerLoad load;
    load.serves = serves(slot, configured);
    load.inFlight = slot.inFlight;
    load.users = slot.users;
    if (!load.serves || load.inFlight >= most) return load;
    // Reads words that each call changes: skipped if the pool's own count shows a busy worker.
    if (load.inFlight == 0 || leaving != nullptr) load.work = slot.channel->load();
    load.held = load.busyWith() > 0 && slot.channel->held();
    if (shared_) load.othersCalls = slot.channel->othersCalls();
    if (leaving != nullptr) load.serves = &slot != leaving && mayMoveTo(load);
    return load;
  });
  return chosen ? slots_[*chosen] : nullptr;
}

// takeLocked() counted the place when the slot was chosen.
Pool::WorkerReservation Pool::reserveLocked(std::shared_ptr<WorkerSlot> slot) {
  lastPool = this;
  lastSlot = slot->index;
  ipc::reachCrashPoint(ipc::CrashPoint::kTurnTaken);
  auto channel = slot->channel;
  const bool idle = slot->inFlight == 1 && channel->load() == 0;
  return {shared_from_this(), std::move(slot), std::move(channel), idle};
}

void Pool::takeLocked(WorkerSlot& slot) {
  ++slot.inFlight;
  ++slot.users;
}

void Pool::leaveLocked(WorkerSlot& slot) {
  --slot.inFlight;
  --slot.users;
  if (waiters_.empty() || !leavesPlaceFree(slot)) return serveWaitersLocked();
  serveMigrationsLocked();
  countLineLocked();
}

// True if the place is not given to the line now. Only where the worker has another call: when that
// call leaves, the line is looked at again, so no thread in line is forgotten.
bool Pool::leavesPlaceFree(const WorkerSlot& slot) const {
  return slot.inFlight > 0 && Clock::now() - lastHandOver_ < kBetweenHandOvers;
}

Pool::WorkerReservation Pool::reserveWorker(const Deadline& deadline, bool accepted,
                                            CancellationToken* cancellation, EntryTurn* turn,
                                            bool again) {
  base::MutexLock lock(ownMutex());
  if (accepted) {
    checkLocked();
  } else {
    admitLocked(deadline, cancellation, lock);
  }
  // A worker may have become free without an event that serves the line.
  if (!migrations_.empty()) serveWaitersLocked();
  const WorkerLink* const configured = WorkerSetup::configuredByThisThread();
  if (std::shared_ptr<WorkerSlot> slot = pickLocked(nullptr, configured)) {
    takeLocked(*slot);
    endTurn(turn);
    return reserveLocked(std::move(slot));
  }
  Waiter waiter;
  waiter.configured = configured;
  if (again) {
    waiters_.push_front(&waiter);
  } else {
    waiters_.push_back(&waiter);
  }
  endTurn(turn);
  try {
    serveWaitersLocked();
    awaitPlace(waiter, deadline, cancellation, lock);
  } catch (...) {
    lock.unlock();
    leaveLine(waiter);
    throw;
  }
  return reserveLocked(std::move(waiter.slot));
}

// The waiter leaves the line, and a place that it may have got is passed on.
void Pool::leaveLine(Waiter& waiter) {
  const Ending ending(*this);
  waiters_.remove(&waiter);
  countLineLocked();
  if (waiter.slot) leaveLocked(*waiter.slot);
}

// Waits in line, with `lock` released meanwhile. Throws if the waiter is to leave the line.
void Pool::awaitPlace(Waiter& waiter, const Deadline& deadline, CancellationToken* cancellation,
                      base::MutexLock& lock) {
  const base::WithoutCancellation complete;
  UnheardOf unheardOf;
  while (!waiter.slot) {
    if (std::all_of(slots_.begin(), slots_.begin() + static_cast<ptrdiff_t>(usedSlots_),
                    [](const auto& each) { return !each->quarantine.empty(); })) {
      throw PoolUnavailable(slots_.front()->quarantine);
    }
    unheardOf.look(std::none_of(slots_.begin(), slots_.begin() + static_cast<ptrdiff_t>(usedSlots_),
                                [](const auto& each) { return lives(*each); }),
                   connection_);
    if (deadline && Clock::now() >= *deadline) {
      throw DeadlineExceeded(
          "the deadline passed while the call waited for a free worker" + unheardOf.cause(),
          /*started=*/false);
    }
    const auto look = Clock::now() + kLongestSleep;
    waiter.wake.wait_until(lock, deadline ? std::min(*deadline, look) : look);
    checkLocked();
    if (cancellation != nullptr && !waiter.slot) {
      waiter.away = true;
      if (isTakenBack(*cancellation, lock)) throw cancelledCall();
      waiter.away = false;
    }
    if (!waiter.slot) serveWaitersLocked();
    if (!waiter.slot) lookAtHeld(lock);
  }
}

// Asks without the lock: a program's function may take its time.
bool Pool::isTakenBack(CancellationToken& cancellation,
                       base::MutexLock& lock) ISOPOOL_LOCKS_UNCHECKED {
  // Also if that function throws, or ends the thread.
  struct Relock {
    base::MutexLock& lock;
    ~Relock() { lock.lock(); }
  };
  lock.unlock();
  const Relock relock{lock};
  return cancellation.requested() || cancellation.stops();
}

// Kills workers that are blocked. When every call has moved away from a worker, no thread waits for
// an answer from it and checks that. Clang does not follow a lock that is released meanwhile.
void Pool::lookAtHeld(base::MutexLock& lock) ISOPOOL_LOCKS_UNCHECKED {
  for (const auto& slot : slots_) {
    if (!serves(*slot) || !slot->channel->held()) continue;
    const auto channel = slot->channel;
    lock.unlock();
    try {
      channel->killIfBlocked();
    } catch (const std::bad_alloc&) {
      // The next look tries again. The waiter is in line, so the lock has to be taken again.
    }
    lock.lock();
  }
}

void Pool::serveMigrationsLocked() {
  for (auto next = migrations_.begin(); next != migrations_.end();) {
    PoolMigration& migration = **next;
    auto slot = pickLocked(migration.from_);
    if (!slot) {
      ++next;
      continue;
    }
    next = migrations_.erase(next);
    takeLocked(*slot);
    migration.give(std::move(slot));
  }
}

void Pool::serveWaitersLocked() {
  serveMigrationsLocked();
  while (true) {
    const auto next = std::find_if(waiters_.begin(), waiters_.end(),
                                   [](const Waiter* each) { return !each->away; });
    if (next == waiters_.end()) break;
    Waiter* waiter = *next;
    auto slot = pickLocked(nullptr, waiter->configured);
    if (!slot) break;
    waiters_.erase(next);
    takeLocked(*slot);
    lastHandOver_ = Clock::now();
    waiter->slot = std::move(slot);
    waiter->wake.notify_one();
  }
  countLineLocked();
}

void Pool::serveWaiters() {
  if (generation_ != forkGeneration()) return;
  base::MutexLock lock(mutex_);
  serveWaitersLocked();
}

void Pool::countLineLocked() {
  inLine_.store(waiters_.size() + migrations_.size(), std::memory_order_relaxed);
}

void Pool::endReservation(WorkerSlot& slot) {
  if (generation_ != forkGeneration()) return;
  const Ending ending(*this);
  leaveLocked(slot);
}

bool Pool::reservePlace(PoolMigration& migration) {
  base::MutexLock lock(mutex_);
  if (!migration.to_) {
    if (std::find(migrations_.begin(), migrations_.end(), &migration) == migrations_.end()) {
      migrations_.push_back(&migration);
    }
    serveWaitersLocked();
  }
  return migration.to_ != nullptr;
}

void Pool::forgetPlace(PoolMigration& migration) {
  const Ending ending(*this);
  migrations_.remove(&migration);
  migration.found_.store(false, std::memory_order_relaxed);
  if (const auto slot = std::exchange(migration.to_, nullptr)) leaveLocked(*slot);
  countLineLocked();
}

std::optional<Pool::WorkerReservation> Pool::takeReserved(PoolMigration& migration) {
  base::MutexLock lock(mutex_);
  checkLocked();
  if (!serves(*migration.to_)) return std::nullopt;
  return reserveLocked(std::exchange(migration.to_, nullptr));
}

void Pool::noteServiceTime(std::chrono::nanoseconds time) {
  // A race between callers loses an observation at worst.
  const int64_t known = serviceNanoseconds_.load(std::memory_order_relaxed);
  serviceNanoseconds_.store(known + (time.count() - known) / 8, std::memory_order_relaxed);
}

// ---- Slots -----------------------------------------------------------------------------------

std::shared_ptr<WorkerSlot> Pool::acquireUser() {
  base::MutexLock lock(ownMutex());
  checkLocked();
  if (slots_.empty()) throw Error("the manager has no workers");
  std::shared_ptr<WorkerSlot> best;
  std::tuple<bool, uint32_t, uint32_t> bestRank;
  const auto consider = [&](const std::shared_ptr<WorkerSlot>& slot) {
    const bool serving = serves(*slot);
    const std::tuple rank(!serving, serving ? slot->channel->occupied() : 0, slot->users);
    if (best && rank >= bestRank) return;
    best = slot;
    bestRank = rank;
  };
  if (lastPool == this && lastSlot < usedSlots_) consider(slots_[lastSlot]);
  for (size_t i = 0; i < usedSlots_; ++i) consider(slots_[i]);
  ++best->users;
  lastPool = this;
  lastSlot = best->index;
  return best;
}

void Pool::addUser(WorkerSlot& slot) {
  base::MutexLock lock(mutex_);
  ++slot.users;
}

void Pool::releaseUser(WorkerSlot& slot) {
  if (generation_ != forkGeneration()) return;
  base::MutexLock lock(mutex_);
  --slot.users;
  if (inLine_.load(std::memory_order_relaxed) != 0) serveWaitersLocked();
}

std::shared_ptr<WorkerLink> Pool::liveChannel(WorkerSlot& slot, const Deadline& deadline) {
  WorkerSlot* const one = &slot;
  return awaitWorker({&one, 1}, deadline);
}

std::shared_ptr<WorkerLink> Pool::awaitWorker(std::span<WorkerSlot* const> slots,
                                              const Deadline& deadline) {
  const base::WithoutCancellation complete;
  base::MutexLock lock(ownMutex());
  UnheardOf unheardOf;
  for (;;) {
    checkLocked();
    bool none = true;
    const WorkerSlot* quarantined = slots.front();
    for (const WorkerSlot* slot : slots) {
      if (serves(*slot, WorkerSetup::configuredByThisThread())) return slot->channel;
      if (lives(*slot)) none = false;
      if (slot->quarantine.empty()) quarantined = nullptr;
    }
    if (quarantined != nullptr) throw PoolUnavailable(quarantined->quarantine);
    unheardOf.look(none, connection_);
    if (deadline && Clock::now() >= *deadline) {
      const std::shared_ptr<SupervisorConnection> connection = connection_;
      lock.unlock();
      throw DeadlineExceeded("the deadline passed while worker " +
                                 std::to_string(slots.front()->index) + whatItWaitsFor(connection) +
                                 unheardOf.cause(),
                             /*started=*/false);
    }
    const auto look = Clock::now() + kLongestSleep;
    changed_.wait_until(lock, deadline ? std::min(*deadline, look) : look);
  }
}

std::shared_ptr<WorkerLink> Pool::currentLink(const WorkerSlot& slot) {
  if (generation_ != forkGeneration()) return nullptr;
  base::MutexLock lock(mutex_);
  return lives(slot) ? slot.channel : nullptr;
}

std::shared_ptr<WorkerSlot> Pool::slotServedBy(const WorkerLink& channel) {
  base::MutexLock lock(mutex_);
  const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                 [&](const auto& each) { return each->channel.get() == &channel; });
  return slot == slots_.end() ? nullptr : *slot;
}

void Pool::limitSlots(size_t count) {
  {
    base::MutexLock lock(ownMutex());
    checkLocked();
    usedSlots_ = count;
    serveWaitersLocked();
  }
  changed_.notify_all();
}

// ---- Events ----------------------------------------------------------------------------------

void Pool::workerIntroduced(const std::shared_ptr<WorkerLink>& channel) {
  if (spareHasObjects_ && warmUps_.any()) warmUps_.start(channel, nullptr);
}

void Pool::workerIsWarm() {
  if (generation_ != forkGeneration()) return;
  {
    base::MutexLock lock(mutex_);
    serveWaitersLocked();
  }
  changed_.notify_all();
}

void Pool::workerAssigned(uint32_t index, std::shared_ptr<WorkerLink> channel) {
  const std::shared_ptr<WorkerLink> assigned = channel;
  // Before calls find the worker. A spare has made the calls already, unless it was introduced
  // before the pool was attached. The environment is applied to the worker of a slot only.
  if (warmUps_.any() && index < slots_.size()) {
    warmUps_.start(channel, spareHasObjects_ ? nullptr : slots_[index]);
  }
  {
    base::MutexLock lock(mutex_);
    // The event may have been on its way when the pool was closed.
    if (closed_ || index >= slots_.size()) return;
    WorkerSlot& slot = *slots_[index];
    if (slot.channel) {
      workersReplaced_.fetch_add(1);
      ++slot.restarts;
      slot.completedBefore += slot.channel->memory().end().completedCalls();
    }
    slot.channel = std::move(channel);
    slot.lost = false;
    slot.quarantine.clear();
    serveWaitersLocked();
  }
  changed_.notify_all();
  eventLog_.write(LogLevel::kDebug, [&] { return assigned->name() + " serves"; });
}

void Pool::workerDied(uint32_t index, const WorkerLost::Death& death, bool asked) {
  {
    base::MutexLock lock(mutex_);
    if (index < slots_.size()) slots_[index]->lastDeath = death;
  }
  eventLog_.write(asked ? LogLevel::kInfo : LogLevel::kWarning, [&] {
    return deathText(death) + (death.crashLog.empty() ? "" : "; its crash log:\n" + death.crashLog);
  });
}

void Pool::slotQuarantined(uint32_t index, std::string text) {
  eventLog_.write(LogLevel::kError, [&] { return text; });
  {
    base::MutexLock lock(mutex_);
    if (index >= slots_.size()) return;
    slots_[index]->quarantine = std::move(text);
    for (Waiter* waiter : waiters_) waiter->wake.notify_all();
  }
  changed_.notify_all();
}

}  // namespace isopool::client
