// SPDX-License-Identifier: BSD-3-Clause
// The lives of a group's workers: recycling, retirement, and workers that members have left.
#include <algorithm>

#include "base/log/log.h"
#include "supervisor/pool/worker_group.h"

namespace isopool::supervisor {

using base::Epoch;
using base::PoolId;

namespace {

// How often calls, age and memory of workers with a limited life are checked, also while such a
// worker waits for a spare, and how often clients are asked to release a worker that retires.
constexpr base::Milliseconds kLifeWatchPeriod(1000);
constexpr base::Milliseconds kSpareWaitPeriod(20);
constexpr base::Milliseconds kRetirementPeriod(50);

}  // namespace

// The timer runs only if lives are limited or a worker retires, so that an idle pool costs nothing.
void WorkerGroup::watchLives() {
  const Recycling& recycling = services_.options.recycling;
  const bool limited = recycling.calls != 0 || recycling.age.count() != 0 ||
                       recycling.memoryGrowth != 0 || recycling.memoryCap != 0;
  const bool pursues = !retiring_.empty() || !left_.empty() || spareAwaited_;
  if (over_ || lifeWatch_.isSet() || (!limited && !pursues)) return;
  base::Milliseconds period =
      retiring_.empty() && left_.empty() ? kLifeWatchPeriod : kRetirementPeriod;
  if (spareAwaited_) period = kSpareWaitPeriod;
  lifeWatch_.setAfter(period, [this] { checkLives(); });
}

void WorkerGroup::checkLives() {
  pursueRetirements();
  spareAwaited_ = false;
  // One worker at a time: the next one retires only when a new spare is ready.
  for (auto& [epoch, life] : lives_) {
    if (!retiring_.empty()) break;
    Worker& worker = *find(epoch);
    const std::optional<SlotTable::SlotAssignment> assignment = slotTable_.assignmentOf(epoch);
    if (worker.stage() != Worker::Stage::kReady || !assignment || !assignment->slot) continue;
    Processes& processes = services_.processes;
    const std::string why = life.whyOver(
        worker.completedCalls(), ageOf(worker),
        {.own = [&] { return processes.residentAnonymousBytes(worker.pid()) + worker.keptBytes(); },
         .left = [&] { return processes.privateMemoryLeft(worker.pid()); }});
    if (why.empty()) continue;
    const std::string who = describe(worker);
    if (spareIsBusy() || !slotTable_.relieve(epoch)) {
      spareAwaited_ = true;
      break;
    }
    retiring_[epoch].time.look(services_.loop.now());
    setTitle(epoch);
    ++recycled_;
    base::log(base::LogLevel::kInfo, who + " is replaced: " + why);
    pursueRetirements();
  }
  watchLives();
}

// True while a ready spare makes the objects of its clients, for which their calls would wait. A
// client may keep a spare busy, so it is taken nevertheless after a while.
bool WorkerGroup::spareIsBusy() const {
  const base::TimePoint now = services_.loop.now();
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const Worker& worker = *entry.second;
    const std::optional<SlotTable::SlotAssignment> assignment =
        slotTable_.assignmentOf(entry.first);
    if (!assignment || assignment->slot || !assignment->usable) return false;
    if (now - worker.bornAt() > services_.options.recycling.patience) return false;
    return std::any_of(worker.attachments().begin(), worker.attachments().end(),
                       [&](const auto& attached) {
                         return attached.second.usable() && worker.busyWith(attached.first);
                       });
  });
}

// Checked at once: until the worker is replaced, its calls fail.
void WorkerGroup::memoryRanOut(Epoch epoch) {
  const auto life = lives_.find(epoch);
  if (over_ || life == lives_.end()) return;
  life->second.memoryRanOut();
  lifeWatch_.setAfter(base::Milliseconds(0), [this] { checkLives(); });
}

std::string WorkerGroup::recycle(Worker& worker, const std::string& why) {
  const Epoch epoch = worker.epoch();
  const std::optional<SlotTable::SlotAssignment> assignment = slotTable_.assignmentOf(epoch);
  if (worker.stage() == Worker::Stage::kDying) return describe(worker) + " is ending";
  if (retires(epoch)) return describe(worker) + " has been replaced already";
  if (!assignment || !assignment->slot) return describe(worker) + " serves no slot";
  if (worker.stage() != Worker::Stage::kReady) return describe(worker) + " is being started";
  lives_.at(epoch).end(why);
  lifeWatch_.setAfter(base::Milliseconds(0), [this] { checkLives(); });
  return {};
}

void WorkerGroup::released(Epoch epoch, ClientId client) {
  const auto found = retiring_.find(epoch);
  if (found != retiring_.end()) found->second.released.insert(client);
  if (left_.erase({epoch, client}) == 0 || found != retiring_.end()) return;
  // By now the worker may serve the member again.
  const auto member = members_.find(client);
  if (member != members_.end() && usesWorker(*member->second, epoch)) return;
  if (Worker* worker = find(epoch)) worker->detach(client);
}

void WorkerGroup::leaveWorker(Worker& worker, GroupClient& member) {
  if (worker.attachment(member.id()) == nullptr) return;
  left_[{worker.epoch(), member.id()}].look(services_.loop.now());
  member.workerRetires(worker.epoch());
  watchLives();
}

bool WorkerGroup::usesWorker(const GroupClient& member, Epoch epoch) const {
  return std::any_of(serving_.begin(), serving_.end(), [&](const auto& entry) {
    return entry.second == epoch &&
           member.uses(Slot{PoolId(entry.first.first), entry.first.second});
  });
}

// Until the worker ends, the member releases it or uses it again. A session may hold it for long.
void WorkerGroup::pursueLeft() {
  for (auto entry = left_.begin(); entry != left_.end();) {
    const auto [epoch, client] = entry->first;
    const auto time = entry->second.look(services_.loop.now());
    Worker* worker = find(epoch);
    const auto member = members_.find(client);
    const bool over = worker == nullptr || worker->attachment(client) == nullptr ||
                      member == members_.end() || retires(epoch) ||
                      usesWorker(*member->second, epoch) ||
                      time > services_.options.recycling.patience;
    if (!over) member->second->workerRetires(epoch);
    entry = over ? left_.erase(entry) : std::next(entry);
  }
}

void WorkerGroup::pursueRetirements() {
  pursueLeft();
  const base::Milliseconds patience = services_.options.recycling.patience;
  for (auto& [epoch, retirement] : retiring_) {
    const auto time = retirement.time.look(services_.loop.now());
    Worker* worker = find(epoch);
    if (worker == nullptr || worker->stage() == Worker::Stage::kDying) continue;
    bool used = false;
    for (const auto& [client, attachment] : worker->attachments()) {
      const auto member = members_.find(client);
      if (member == members_.end()) {
        used = true;  // the client has left, and its channel is being detached
      } else if (retirement.released.count(client) == 0) {
        used = true;
        member->second->workerRetires(epoch);
      } else {
        used = used || worker->busyWith(client);
      }
    }
    if (!used) {
      worker->kill();
    } else if (time > patience) {
      base::log(base::LogLevel::kWarning,
                describe(*worker) +
                    " is killed: it serves no slot any more, but clients still used it after " +
                    std::to_string(patience.count() / 1000) + " s (ISOPOOL_RECYCLE_PATIENCE)");
      worker->kill();
    }
  }
}

}  // namespace isopool::supervisor
