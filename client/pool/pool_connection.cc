// SPDX-License-Identifier: BSD-3-Clause
// A pool's connection to its supervisor: the workers that it asks for, what its loss means for each
// use, and the next one.
#include <algorithm>
#include <system_error>
#include <utility>

#include "base/without_cancellation.h"
#include "client/pool/async_executor.h"
#include "client/pool/pool.h"
#include "client/pool/pool_call.h"
#include "client/program/process_fork.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

constexpr std::chrono::milliseconds kLongestSleep(100);
// From the first worker of a shared supervisor that serves a new pool. Idle ones need milliseconds.
constexpr std::chrono::milliseconds kForOtherWorkers(1000);

}  // namespace

void Pool::open(std::chrono::milliseconds patience) {
  for (uint32_t i = 0; i < settings_.workers; ++i) {
    auto slot = std::make_shared<WorkerSlot>();
    slot->pool = weak_from_this();
    slot->index = i;
    slots_.push_back(std::move(slot));
  }
  if (reconnects()) {
    try {
      reconnection_.start();
    } catch (const std::system_error& error) {
      throw SupervisorLost(std::string("can't start the thread that attaches again: ") +
                           error.what());
    }
  }
  std::shared_ptr<SupervisorConnection> connection;
  {
    base::MutexLock lock(mutex_);
    usedSlots_ = slots_.size();
    connection = connection_;
  }
  const base::PoolId id = connection->openPool(settings_.workers, weak_from_this());
  {
    base::MutexLock lock(mutex_);
    if (connection_ == connection) id_ = id;
  }
  Deadline deadline;
  if (!noKill()) deadline = Clock::now() + patience;
  if (shared_) return setUpShared(deadline);
  for (const auto& slot : slots_) {
    const auto channel = liveChannel(*slot, deadline);
    setup_.configure(slot, *channel, deadline);
  }
}

// A worker that runs a long call of another program, or hangs, attaches this one later. It joins
// then, and whoever uses it first applies the environment to it, as to a replacement.
void Pool::setUpShared(const Deadline& deadline) {
  std::vector<WorkerSlot*> all;
  for (const auto& slot : slots_) all.push_back(slot.get());
  setup_.configure(*awaitWorker(all, deadline), deadline);
  Deadline soon = Clock::now() + kForOtherWorkers;
  if (deadline) soon = std::min(*soon, *deadline);
  for (const auto& slot : slots_) {
    std::shared_ptr<WorkerLink> other;
    try {
      other = liveChannel(*slot, soon);
    } catch (const DeadlineExceeded&) {
      continue;
    } catch (const PoolUnavailable&) {
      continue;
    }
    // The environment may run code there, which would wait for the other program's call.
    if (other->othersCalls() == 0) setup_.configure(*other, deadline);
  }
}

std::shared_ptr<SupervisorConnection> Pool::connection() {
  if (generation_ != forkGeneration()) return nullptr;
  base::MutexLock lock(mutex_);
  return connection_;
}

void Pool::check() {
  base::MutexLock lock(ownMutex());
  checkLocked();
}

void Pool::checkLocked() {
  if (closed_) throw Error(std::string("the ") + owner_ + " that this belongs to is gone");
  if (lost_.empty() || mayReconnectLocked()) return;
  const std::string failure = reconnects() ? reconnection_.lastFailure() : "";
  throw SupervisorLost(lost_ + (failure.empty() ? "" : ": " + failure));
}

void Pool::checkSupervisorOf(WorkerLink& channel, bool started, const char* consequence) {
  std::shared_ptr<SupervisorConnection> supervisor;
  std::string lost = channel.supervisorLoss();
  {
    base::MutexLock lock(ownMutex());
    if (closed_) checkLocked();
    // The link may not have been told yet.
    if (lost.empty()) lost = lost_;
    supervisor = connection_;
  }
  if (!lost.empty()) throw SupervisorLost(lost + consequence, started);
  // Workers die with their supervisor, and the control thread may see its death later.
  if (supervisor) supervisor->checkSupervisorLives(started);
}

void Pool::checkForRetry(WorkerLink& channel) {
  if (reconnects()) return check();
  checkSupervisorOf(channel, /*started=*/false);
}

bool Pool::mayReconnectLocked() const { return reconnects() && Clock::now() < awayUntil_; }

// Call when the supervisor is about to end or was lost.
void Pool::awayLocked() { awayUntil_ = Clock::now() + settings_.reconnect; }

// Throws unless a new use may begin or wait.
void Pool::checkAdmittedLocked() {
  checkLocked();
  if (!refusal_.empty() && !mayReconnectLocked()) throw SupervisorLost(refusal_);
}

void Pool::admit(const Deadline& deadline) {
  base::MutexLock lock(ownMutex());
  admitLocked(deadline, nullptr, lock);
}

// Waits, with `lock` released meanwhile, until a new use may begin.
void Pool::admitLocked(const Deadline& deadline, CancellationToken* cancellation,
                       base::MutexLock& lock) {
  checkAdmittedLocked();
  while (!lost_.empty() || !refusal_.empty()) lookForConnection(deadline, cancellation, lock);
}

// Waits a while for the next connection, with `lock` released. Throws if the wait is over.
void Pool::lookForConnection(const Deadline& deadline, CancellationToken* cancellation,
                             base::MutexLock& lock) {
  if (isPast(deadline)) {
    throw DeadlineExceeded(
        "the deadline passed before the manager was attached to a supervisor again: " +
            (lost_.empty() ? refusal_ : lost_),
        /*started=*/false);
  }
  const base::WithoutCancellation complete;
  const auto look = Clock::now() + kLongestSleep;
  changed_.wait_until(lock, deadline ? std::min(*deadline, look) : look);
  if (cancellation != nullptr && isTakenBack(*cancellation, lock)) throw cancelledCall();
  checkAdmittedLocked();
}

bool Pool::awaitNextConnection(const WorkerLink& channel, const Deadline& deadline,
                               CancellationToken* cancellation) {
  if (!reconnects()) return false;
  base::MutexLock lock(ownMutex());
  checkAdmittedLocked();
  while (!lost_.empty() || !refusal_.empty()) {
    // The supervisor waits for the accepted calls, perhaps for this one.
    if (lost_.empty() && draining_) return false;
    lookForConnection(deadline, cancellation, lock);
  }
  return std::none_of(slots_.begin(), slots_.end(), [&](const auto& slot) {
    return slot->channel.get() == &channel && !slot->lost;
  });
}

void Pool::awaitRetry(const WorkerLink& channel, const Deadline& deadline) {
  if (!reconnects()) throw;
  if (channel.dead()) return check();
  if (!awaitNextConnection(channel, deadline)) throw;
}

bool Pool::awaitConnectionAfter(const SupervisorConnection& former) {
  const base::WithoutCancellation complete;
  base::MutexLock lock(mutex_);
  while (!closed_ && connection_.get() == &former) {
    // The control thread may be about to report the loss that this thread has seen.
    if (!reconnects() || (!lost_.empty() && !mayReconnectLocked())) return false;
    changed_.wait_until(lock, Clock::now() + kLongestSleep);
  }
  return !closed_;
}

bool Pool::lacksConnection() {
  std::shared_ptr<SupervisorConnection> present;
  {
    base::MutexLock lock(mutex_);
    if (closed_) return false;
    if (!lost_.empty()) return true;
    present = connection_;
  }
  // Its loss may have been reported before the pool had it.
  return present->lost();
}

void Pool::supervisorLost(uint64_t connection, std::string text) {
  {
    base::MutexLock lock(mutex_);
    if (!connection_ || connection_->number() != connection) return;
    if (lost_.empty()) {
      loseSlotsLocked(text);
      awayLocked();
    }
    lost_ = std::move(text);
    if (reconnects()) {
      for (const auto& slot : slots_) slot->quarantine.clear();
    }
    for (Waiter* waiter : waiters_) waiter->wake.notify_all();
  }
  changed_.notify_all();
  if (reconnects()) reconnection_.begin();
}

// The control thread ends the links later, perhaps when the pool has the next connection already,
// so that each call would find a link that refuses it, or that has ended, and look for a worker
// again. Only at the first report of a loss: later the slots may have workers of the next
// connection. A call that ends by the loss has to find its reason when `lost_` is empty again.
void Pool::loseSlotsLocked(const std::string& text) {
  for (const auto& slot : slots_) {
    if (slot->channel && slot->channel->supervisorLoss().empty()) {
      slot->channel->loseSupervisor(text);
    }
    slot->lost = true;
  }
}

void Pool::reportCalls() {
  if (const auto present = connection()) callReports_.send(models_, callsInFlight(), *present);
}

CallReports::InFlight Pool::callsInFlight() {
  CallReports::InFlight calls;
  if (callLimit_ == nullptr) return calls;
  base::MutexLock lock(mutex_);
  for (const auto& slot : slots_) {
    if (slot->channel && !slot->channel->dead()) calls.awaited += slot->channel->awaited();
  }
  // One that has just ended may still be counted.
  const uint32_t all = callLimit_->inFlight();
  calls.waiting = all > calls.awaited ? all - calls.awaited : 0;
  return calls;
}

void Pool::attach(const std::shared_ptr<SupervisorConnection>& next) {
  contents_.giveTo(next);
  // The former one may be the same supervisor, which has evicted this program: then what it has no
  // report of yet is reported after all.
  if (const auto last = connection(); last && !next->sameSupervisorAs(*last)) {
    callReports_.beginAnew(models_);
  }
  const base::PoolId id = next->openPool(settings_.workers, weak_from_this());
  std::shared_ptr<SupervisorConnection> former;
  std::shared_ptr<AsyncExecutor> executor;
  Clock::duration away{};
  {
    base::MutexLock lock(mutex_);
    if (closed_) throw Error("the manager has ended");
    callLimit_->limitTo(next->mostCalls());
    former = std::exchange(connection_, next);
    id_ = id;
    away = Clock::now() - (awayUntil_ - settings_.reconnect);
    lost_.clear();
    refusal_.clear();
    draining_ = false;
    executorDrained_ = false;
    executor = executor_;
  }
  if (executor) executor->resume();
  reattached_.fetch_add(1);
  changed_.notify_all();
  // From here on memory may be short: what is left undone, later events and lacksConnection() do.
  serveWaiters();
  // Its control thread may have reported a loss before this pool had it.
  if (next->lost()) supervisorLost(next->number(), next->lostReason());
  eventLog_.write(LogLevel::kWarning, [&] {
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(away);
    return "attached again to the supervisor " + settings_.address + " after " +
           std::to_string(time.count()) + " ms";
  });
}

}  // namespace isopool::client
