// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/worker_group.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "base/system_call.h"
#include "ipc/crash_point.h"
#include "ipc/worker_exit.h"
#include "supervisor/pool/worker_status.h"
#include "supervisor/processes/worker_folders.h"

namespace isopool::supervisor {

using base::Epoch;
using base::PoolId;
using ipc::CrashPoint;

namespace {

constexpr base::Milliseconds kZygoteRetry(1000);
// Bounds of the period at which running calls are checked, which is an eighth of their time limit.
constexpr base::Milliseconds kShortestCallLook(5);
constexpr base::Milliseconds kLongestCallLook(1000);

std::pair<uint32_t, uint32_t> keyOf(const Slot& slot) { return {slot.pool.value, slot.index}; }

}  // namespace

WorkerGroup::WorkerGroup(Services& services, std::string name, Events events)
    : services_(services),
      name_(std::move(name)),
      events_(std::move(events)),
      slotTable_(*this, services.options.spares, services.options.restart,
                 std::max<uint32_t>(1, static_cast<uint32_t>(services.options.gpus.size()))),
      holds_(services.options.restart),
      tick_(services.loop),
      lifeWatch_(services.loop),
      channelRetry_(services.loop),
      callWatch_(services.loop),
      memoryWatch_(services,
                   {.subjects = [this] { return watchedWorkers(); },
                    .tooMuch = [this](Epoch epoch,
                                      const std::string& why) { memoryBeyondLimit(epoch, why); }}),
      holdEnd_(services.loop),
      separation_(services.options.restart),
      separationEnd_(services.loop),
      self_(this) {}

WorkerGroup::~WorkerGroup() = default;

// ---- its members -----------------------------------------------------------------------------

void WorkerGroup::openPool(PoolId pool, uint32_t workers) { slotTable_.openPool(pool, workers); }

void WorkerGroup::closePool(PoolId pool) {
  std::erase_if(serving_, [&](const auto& entry) { return entry.first.first == pool.value; });
  slotTable_.closePool(pool);
  scheduleTick();
}

void WorkerGroup::resizePool(PoolId pool, uint32_t workers) {
  const size_t before = slotTable_.slotsOf(pool).size();
  if (over_ || before == workers) return;
  base::log(base::LogLevel::kInfo, describe(pool) + " has " + std::to_string(workers) +
                                       " workers from now on, and had " + std::to_string(before));
  const std::vector<Epoch> leaving = slotTable_.resizePool(pool, workers);
  const auto isGone = [&](const auto& entry) {
    return entry.first.first == pool.value && entry.first.second >= workers;
  };
  std::erase_if(serving_, isGone);
  std::erase_if(lastExits_, isGone);
  for (const Epoch epoch : leaving) {
    retiring_[epoch].time.look(services_.loop.now());
    setTitle(epoch);
  }
  slotsOfMembersChanged();
  scheduleTick();
  if (!leaving.empty()) {
    lifeWatch_.setAfter(base::Milliseconds(0), [this] { checkLives(); });
  }
}

void WorkerGroup::end() {
  over_ = true;
  tick_.cancel();
  lifeWatch_.cancel();
  channelRetry_.cancel();
  callWatch_.cancel();
  memoryWatch_.end();
  holdEnd_.cancel();
  separationEnd_.cancel();
  for (const auto& [epoch, worker] : workers_) worker->kill();
}

void WorkerGroup::loseWorker(Worker& worker, DeathCause cause, const std::string& reason) {
  const bool known = worker.stage() == Worker::Stage::kDying;
  worker.blame(cause, reason);
  worker.kill();
  if (!known) workerLost(worker);
}

void WorkerGroup::workerReported(Worker& worker, GroupClient& member, const std::string& reason) {
  if (worker.stage() == Worker::Stage::kDying) return;
  const std::string text =
      member.describe() + " reported: " + (reason.empty() ? "it has died" : reason);
  switch (services_.processes.conditionOf(worker.pid())) {
    case Processes::Condition::kEnds:
      return loseWorker(worker, DeathCause::kUnknown, "");
    case Processes::Condition::kStopped:
      // With no_kill a debugger may have stopped the worker.
      if (services_.options.noKill) return;
      return loseWorker(worker, DeathCause::kStopped, "it was stopped by a signal (" + text + ")");
    case Processes::Condition::kRuns:
      break;
  }
  const uint32_t times = worker.reportedBy(member.id());
  if (worker.reportedByAll()) return loseWorker(worker, DeathCause::kReported, text);
  base::log(times == 1 ? base::LogLevel::kWarning : base::LogLevel::kDebug,
            describe(worker) + " still runs, although " + text);
  // If the worker answers, only its channel to the member ends.
  worker.detach(member.id());
}

void WorkerGroup::stateChanged(const Processes::StateChange& change) {
  for (const auto& [epoch, worker] : workers_) {
    if (worker->pid() == change.child) return worker->stateChanged(change.stopped);
  }
}

void WorkerGroup::blameReaped(Epoch epoch, DeathCause cause, const std::string& reason) {
  const auto reaped = reaped_.find(epoch);
  if (reaped != reaped_.end()) reaped->second->blame(cause, reason);
}

void WorkerGroup::onZygoteCrashLoop() {
  const std::string text = "no worker can be started: " + services_.zygote.lastFailure();
  if (slotTable_.poolWithoutWorker()) {
    // Iterates over a copy: a member may leave in onNoWorkers().
    for (const auto& [id, member] : std::map(members_)) member->onNoWorkers(text);
  }
  for (const Slot& slot : slotTable_.unservedSlots()) {
    for (const auto& [id, member] : members_) {
      if (member->uses(slot))
        member->slotQuarantined({.slot = slot, .deaths = 0, .duration = kZygoteRetry}, text);
    }
  }
}

// ---- events of its workers --------------------------------------------------------------------

void WorkerGroup::workerReady(Worker& worker) {
  const Epoch epoch = worker.epoch();
  lives_[epoch] = LifeSpan(services_.options.recycling, services_.random);
  totals_.countStart(ageOf(worker));
  memoryWatch_.begin();
  ipc::reachCrashPoint(CrashPoint::kWorkerSeenReady);
  // Before workerUsable(), which may give the worker another place.
  for (const auto& [id, member] : members_) introduce(worker, *member);
  slotTable_.workerUsable(epoch);
  const auto assignment = slotTable_.assignmentOf(epoch);
  if (assignment && !assignment->slot) setTitle(epoch);  // else assignWorker() did
  watchLives();
}

void WorkerGroup::workerLost(Worker& worker) {
  if (over_) return;
  ipc::reachCrashPoint(CrashPoint::kDeathSeen);
  const Epoch epoch = worker.epoch();
  const DeathOrigin origin = originOf(worker);
  ExitKind death = worker.exitKindNow();
  const bool early = death == ExitKind::kBeforeFirstCall;
  if (early && origin.kind != DeathOrigin::Kind::kNone) death = ExitKind::kOfClient;
  const std::optional<SlotTable::SlotAssignment> assignment = slotTable_.assignmentOf(epoch);
  const bool retiring = retires(epoch);
  if (assignment || retiring) {
    DeathReport& lost = lost_[epoch];
    lost.name = describe(worker);
    if (assignment) lost.slot = assignment->slot;
    lost.early = worker.wasIntroduced() && early;
    lost.replaced = retiring;
    lost.processId = worker.pid();
    lost.origin = origin;
    describeOrigin(worker, lost);
  }
  if (!retiring) ++restarts_;
  if (assignment && assignment->slot) {
    LastExit& lastExit = lastExits_[keyOf(*assignment->slot)];
    ++lastExit.restarts;
    lastExit.reason = worker.cause().empty() ? "died" : worker.cause();
    lastExit.worker = epoch;
    lastExit.at = services_.loop.now();
  }
  std::erase_if(serving_, [&](const auto& entry) { return entry.second == epoch; });
  // Before anything slow: callers wait for the replacement.
  const base::Milliseconds vacancy = slotTable_.workerLost(epoch, death, services_.loop.now());
  if (const auto lost = lost_.find(epoch); lost != lost_.end()) lost->second.vacancy = vacancy;
  ipc::reachCrashPoint(CrashPoint::kReplacementAsked);
  reportQuarantines();
  scheduleTick();
  if (services_.zygote.struggling()) onZygoteCrashLoop();
}

void WorkerGroup::logDeath(const DeathReport& report, base::LogLevel level,
                           const std::string& death, const std::string& cause) const {
  std::optional<pid_t> replacement;
  if (over_) {
    // The group starts no worker.
  } else if (report.replaced || !report.slot) {
    replacement = 0;
  } else if (slotTable_.hasPool(report.slot->pool)) {
    const auto serving = serving_.find(keyOf(*report.slot));
    const auto next = serving != serving_.end() ? workers_.find(serving->second) : workers_.end();
    replacement = next != workers_.end() ? next->second->pid() : 0;
  }
  base::log(level, report.text(death, cause, replacement),
            {{"worker_pid", report.processId},
             {"death", death},
             {"replacement_pid", replacement.value_or(0)}});
}

void WorkerGroup::workerGone(Worker& worker, const std::optional<ExitStatus>& status) {
  ipc::reachCrashPoint(CrashPoint::kWorkerReaped);
  const Epoch epoch = worker.epoch();
  const ExitStatus how = status.value_or(ExitStatus{.signal = SIGKILL});
  removeLeftoversSoon(services_.options.workerFolders, epoch);
  totals_.advance(epoch, worker.completedCalls(), how.processorTime, ageOf(worker));
  totals_.forget(epoch);
  const auto lost = lost_.find(epoch);
  if (lost == lost_.end()) {
    if (status) {
      base::log(base::LogLevel::kInfo,
                describe(worker) + " has ended, as it was to: " + how.name());
    }
  } else {
    const bool unfit = how.signal == 0 && how.exitCode == ipc::kUnfitWorkerExit;
    const bool gaveUp = how.signal == 0 && how.exitCode == ipc::kGivenUpWorkerExit;
    const bool served = how.signal == 0 && how.exitCode == ipc::kServedWorkerExit;
    unfit_ += unfit && !lost->second.replaced ? 1 : 0;
    if (unfit || gaveUp) worker.blame(causeOf(how), lastLineOf(worker.crashLog()));
    settleOrigin(worker, how, lost->second);
    if (!served) countAgainstMembers(worker, lost->second, how);
    if (!served && mayBeOfAnyClient(worker, lost->second, how)) separate(worker);
    // Logged by a later handler: a client's report of the cause may be the next message.
    services_.loop.post([self = self_.weak(), record = std::move(lost->second), how, served,
                         death = status ? status->name() : "not started",
                         leaving = workers_.at(epoch)] {
      const std::string& known = leaving->cause();
      const std::string cause = known.empty() ? how.likelyCause() : known;
      WorkerGroup* alive = self.get();
      if (alive == nullptr) return;
      alive->reaped_.erase(leaving->epoch());
      for (auto& [slot, lastExit] : alive->lastExits_) {
        if (lastExit.worker != leaving->epoch()) continue;
        lastExit.reason = death + " (" + cause + ")";
        if (!record.whose.empty()) lastExit.reason += ", " + record.whose;
      }
      if (served) {
        base::log(base::LogLevel::kInfo, "worker (pid " + std::to_string(leaving->pid()) +
                                             ") has served as many tasks as it was to serve");
        return;
      }
      const DeathCause kind = leaving->deathCause(how);
      if (!record.replaced) alive->totals_.countDeath(kind, alive->services_.loop.now());
      // The only program of a private pool has ended the call itself.
      const bool asked = alive->services_.options.privatePool && kind == DeathCause::kOverdue;
      alive->logDeath(record, asked ? base::LogLevel::kInfo : base::LogLevel::kWarning, death,
                      cause);
    });
    reaped_[epoch] = workers_.at(epoch);
    lost_.erase(lost);
  }
  if (!over_) {
    for (const auto& [client, attachment] : worker.attachments()) {
      GroupClient* member = memberOf(client);
      if (member == nullptr) continue;
      member->workerDied(epoch, how);
      tellOwnQuarantine(*member);
    }
  }
  retiring_.erase(epoch);
  lives_.erase(epoch);
  // Destroyed by a later handler: the worker is calling us.
  const auto found = workers_.find(epoch);
  services_.loop.post([leaving = std::move(found->second)] {});
  workers_.erase(found);
  events_.reaped();
}

const GroupTotals& WorkerGroup::totals() {
  for (const auto& [epoch, worker] : workers_) {
    if (worker->pid() == 0) continue;
    totals_.advance(epoch, worker->completedCalls(),
                    services_.processes.useOf(worker->pid()).processorTime, ageOf(*worker));
  }
  return totals_;
}

base::Milliseconds WorkerGroup::ageOf(const Worker& worker) const {
  return std::chrono::duration_cast<base::Milliseconds>(services_.loop.now() - worker.bornAt());
}

Worker* WorkerGroup::find(Epoch epoch) {
  const auto found = workers_.find(epoch);
  return found != workers_.end() ? found->second.get() : nullptr;
}

Worker* WorkerGroup::serving(const Slot& slot) {
  const auto found = serving_.find(keyOf(slot));
  return found != serving_.end() ? find(found->second) : nullptr;
}

void WorkerGroup::appendPids(std::vector<pid_t>& pids) const {
  for (const auto& [epoch, worker] : workers_) {
    if (worker->pid() != 0) pids.push_back(worker->pid());
  }
}

std::string WorkerGroup::describe(const Worker& worker) const {
  const std::optional<SlotTable::SlotAssignment> assignment =
      slotTable_.assignmentOf(worker.epoch());
  std::string text = !assignment || !assignment->slot
                         ? std::string(assignment ? "spare worker" : "worker")
                         : "worker " + std::to_string(assignment->slot->index);
  if (worker.pid() != 0) text += " (pid " + std::to_string(worker.pid()) + ")";
  if (!assignment || !assignment->slot) return text;
  return text + " of " + describe(assignment->slot->pool);
}

std::string WorkerGroup::describe(PoolId pool) const {
  return name_.empty() ? "pool " + std::to_string(pool.value) : name_ + " pool";
}

OutputSource WorkerGroup::outputSourceOf(Epoch epoch) {
  OutputSource source;
  const Worker* worker = find(epoch);
  if (worker == nullptr) return source;
  source.processId = worker->pid();
  source.namesLevels = services_.options.privatePool;
  source.model = readStatusPage(worker->statusPage()).model;
  const std::optional<SlotTable::SlotAssignment> assignment = slotTable_.assignmentOf(epoch);
  if (assignment && assignment->slot) {
    source.slot = std::to_string(assignment->slot->index);
    if (services_.options.privatePool) source.pool = assignment->slot->pool.value;
  } else if (assignment) {
    source.slot = "spare";
  }
  return source;
}

// For ps. Best effort: a worker that runs a call shows it after the call.
void WorkerGroup::setTitle(Epoch epoch) {
  Worker* worker = find(epoch);
  if (worker == nullptr || worker->stage() != Worker::Stage::kReady) return;
  const std::optional<SlotTable::SlotAssignment> assignment = slotTable_.assignmentOf(epoch);
  std::string role = retires(epoch) ? "retiring worker" : "spare";
  if (assignment && assignment->slot) {
    role = "worker " + std::to_string(assignment->slot->index) + " of " +
           describe(assignment->slot->pool);
  }
  worker->send(ipc::SetTitle{role});
}

// ---- decisions of its slot table --------------------------------------------------------------

Epoch WorkerGroup::startWorker(bool spare, uint32_t gpu) {
  const std::vector<std::string>& gpus = services_.options.gpus;
  const Epoch epoch = services_.nextEpoch();
  Worker::Events events;
  events.ready = [this, epoch] { workerReady(*find(epoch)); };
  events.attached = [this, epoch](ClientId client) { workerAttached(*find(epoch), client); };
  events.detached = [this, epoch](ClientId client) { workerDetached(*find(epoch), client); };
  events.segmentWanted = [this, epoch](ClientId client, uint64_t bytes) {
    const auto member = members_.find(client);
    if (member != members_.end()) member->second->segmentWanted(*find(epoch), bytes);
  };
  events.segmentRetired = [this, epoch](ClientId client, uint32_t segment) {
    const auto member = members_.find(client);
    if (member != members_.end()) member->second->segmentRetired(*find(epoch), segment);
  };
  events.inputUnmapped = [this](ClientId client) {
    const auto member = members_.find(client);
    if (member != members_.end()) member->second->inputUnmapped();
  };
  events.forbidden = [this, epoch](const std::string& act, uint64_t times, bool first) {
    totals_.countDenial(act, times);
    // Once in a worker's life: a model may try the same act in every call.
    if (!first) return;
    base::log(base::LogLevel::kWarning, describe(*find(epoch)) + ": the sandbox forbade " + act +
                                            ", " + std::to_string(times) +
                                            (times == 1 ? " time" : " times"));
    if (act == ipc::kTooMuchMemory) memoryRanOut(epoch);
  };
  events.codeLeft = [this, epoch](const ipc::CodeLeft& left) {
    if (over_) return;
    std::string what = left.hooks ? "hooks of all modules or audit hooks are there" : "";
    if (left.threads != 0) {
      what = std::to_string(left.threads) +
             (left.threads == 1 ? " thread still runs" : " threads still run");
    }
    recycle(*find(epoch), what + ", which code of a program that has left had started");
  };
  events.outputSource = [this, epoch] { return outputSourceOf(epoch); };
  events.staysStopped = [this, epoch](base::Milliseconds left, base::Milliseconds leftForCalls) {
    std::string text = describe(*find(epoch)) + " has been stopped by a signal";
    if (left.count() != 0) {
      text += "; unless it is continued, it is killed in " + std::to_string(left.count()) +
              " ms (ISOPOOL_STOPPED_TIMEOUT)";
      if (leftForCalls < left) {
        text += ", or in " + std::to_string(leftForCalls.count()) +
                " ms if calls wait for it that no other worker can serve";
      }
    }
    base::log(base::LogLevel::kWarning, text);
  };
  events.otherServes = [this, epoch](ClientId client) {
    const GroupClient* member = memberOf(client);
    const auto own = slotTable_.assignmentOf(epoch);
    if (member == nullptr || !own || !own->slot) return false;
    return std::any_of(serving_.begin(), serving_.end(), [&](const auto& entry) {
      const Slot slot{base::PoolId(entry.first.first), entry.first.second};
      // A program with several pools calls the workers of the pool that it chose.
      if (entry.second == epoch || slot.pool != own->slot->pool || !member->uses(slot))
        return false;
      const Worker* other = find(entry.second);
      return other != nullptr && other->stage() == Worker::Stage::kReady && !other->isStopped();
    });
  };
  events.lost = [this, epoch] { workerLost(*find(epoch)); };
  events.notMade = [this, epoch] { slotTable_.workerNotMade(epoch); };
  events.gone = [this, epoch](const std::optional<ExitStatus>& status) {
    workerGone(*find(epoch), status);
  };
  try {
    workers_[epoch] = std::make_shared<Worker>(
        services_, epoch, spare, gpus.empty() ? std::string() : gpus[gpu], std::move(events));
  } catch (const base::SystemCallError& error) {
    workers_.erase(epoch);
    const std::string reason = std::string("a worker could not be started: ") + error.what();
    base::log(base::LogLevel::kError, reason);
    services_.loop.post([self = self_.weak(), epoch, reason] {
      WorkerGroup* alive = self.get();
      if (alive == nullptr || alive->over_) return;
      const auto assignment = alive->slotTable_.assignmentOf(epoch);
      if (assignment && assignment->slot) {
        LastExit& lastExit = alive->lastExits_[keyOf(*assignment->slot)];
        lastExit = {lastExit.restarts, reason, epoch, alive->services_.loop.now()};
      }
      alive->slotTable_.workerLost(epoch, ExitKind::kBeforeFirstCall, alive->services_.loop.now());
      alive->reportQuarantines();
      alive->scheduleTick();
    });
  }
  return epoch;
}

void WorkerGroup::retireWorker(Epoch epoch) {
  if (Worker* worker = find(epoch)) worker->kill();
}

void WorkerGroup::assignWorker(const Slot& slot, Epoch epoch) {
  serving_[keyOf(slot)] = epoch;
  if (events_.served) events_.served();
  for (const auto& [id, member] : members_) serveIfAttached(*member, slot, epoch);
  // A spare has a channel to no member while members are kept apart.
  Worker* worker = find(epoch);
  if (separation_.active() && worker != nullptr && worker->stage() == Worker::Stage::kReady) {
    for (const auto& [id, member] : members_) introduce(*worker, *member);
  }
  ipc::reachCrashPoint(CrashPoint::kSpareAssigned);
  setTitle(epoch);
  if (worker != nullptr && worker->isStoppedForSomeTime()) {
    // In a later handler: this is a decision of the slot table, which must not be called here.
    services_.loop.post([self = self_.weak(), epoch] {
      WorkerGroup* alive = self.get();
      Worker* stopped = alive == nullptr ? nullptr : alive->find(epoch);
      if (stopped == nullptr) return;
      alive->loseWorker(*stopped, DeathCause::kStopped,
                        "a signal had stopped it when it was to take over from another worker");
    });
  }
}

void WorkerGroup::slotQuarantined(const Quarantine& quarantine) {
  totals_.countQuarantine();
  base::log(base::LogLevel::kWarning, describe(quarantine));
  newQuarantines_.push_back(quarantine);
}

void WorkerGroup::spareQuarantined(uint32_t deaths, base::Milliseconds duration) {
  totals_.countQuarantine();
  base::log(base::LogLevel::kWarning,
            "no spare worker is started for " + std::to_string(duration.count()) +
                " ms: the last " + std::to_string(deaths) +
                " spares died before they completed a call (ISOPOOL_RESTART_LIMIT, "
                "ISOPOOL_QUARANTINE)");
}

void WorkerGroup::scheduleTick() {
  const std::optional<base::TimePoint> next = slotTable_.nextTick();
  if (!next) return tick_.cancel();
  tick_.setAt(*next, [this] {
    const base::TimePoint now = services_.loop.now();
    const size_t before = slotTable_.quarantinedSlots(now).size();
    slotTable_.tick(now);
    if (slotTable_.quarantinedSlots(now).size() < before) slotsOfMembersChanged();
    scheduleTick();
  });
}

// ---- limits of calls -------------------------------------------------------------------------

void WorkerGroup::settingsChanged() {
  watchLives();
  callWatch_.cancel();  // the period may have changed
  watchCallTimes();
}

// The timer runs only while calls of a member are limited. `continues`: it has just run.
void WorkerGroup::watchCallTimes(bool continues) {
  if (over_ || callWatch_.isSet() || services_.options.noKill) return;
  base::Milliseconds limit(0);  // the shortest
  for (const auto& [client, member] : members_) {
    const base::Milliseconds its = member->callTime();
    if (its.count() != 0 && (limit.count() == 0 || its < limit)) limit = its;
  }
  if (limit.count() == 0) return;
  const base::Milliseconds period = std::clamp(limit / 8, kShortestCallLook, kLongestCallLook);
  if (!continues || callTimes_.between() != period) {
    callTimes_ = CallTimes(period);
    callTimes_.look(services_.loop.now());
  }
  callWatch_.setAfter(period, [this] {
    callTimes_.look(services_.loop.now());
    for (const auto& [epoch, worker] : workers_) {
      if (worker->stage() != Worker::Stage::kReady) continue;
      const auto member = members_.find(ClientId(worker->runningClient()));
      if (member == members_.end()) continue;
      const Attachment* attachment = worker->attachment(member->first);
      if (attachment == nullptr) continue;
      // Reads the time after the number: if another call begins in between, the time is that
      // call's, which is short.
      const uint64_t sequence = attachment->startedSequence();
      const base::Milliseconds its = member->second->callTime();
      if (its.count() == 0) continue;
      const auto ran = callTimes_.ran(epoch, member->first.value, sequence, worker->runningTime());
      if (ran < its) continue;
      member->second->callTimeOver(*worker, sequence);
    }
    watchCallTimes(/*continues=*/true);
  });
}

}  // namespace isopool::supervisor
