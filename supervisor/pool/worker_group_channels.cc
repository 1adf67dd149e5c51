// SPDX-License-Identifier: BSD-3-Clause
// The members of a group and their channels to its workers.
#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "ipc/crash_point.h"
#include "supervisor/pool/worker_group.h"

namespace isopool::supervisor {

using base::Epoch;
using base::PoolId;
using ipc::CrashPoint;

namespace {

constexpr base::Milliseconds kChannelRetry(200);
// A client that has reported a worker this often gets no new channel to it: other clients wait
// while the worker detaches one.
constexpr uint32_t kMostReports = 3;

}  // namespace

void WorkerGroup::join(GroupClient& member) {
  members_[member.id()] = &member;
  watchCallTimes();
  for (const auto& [epoch, worker] : workers_) {
    if (worker->stage() == Worker::Stage::kReady && !retires(epoch)) introduce(*worker, member);
  }
  for (const Quarantine& quarantine : slotTable_.quarantinedSlots(services_.loop.now())) {
    if (member.uses(quarantine.slot)) member.slotQuarantined(quarantine, describe(quarantine));
  }
}

void WorkerGroup::leave(GroupClient& member) {
  if (members_.erase(member.id()) == 0) return;
  departing_[member.id()] = &member;
  for (const auto& [epoch, worker] : workers_) worker->detach(member.id());
}

void WorkerGroup::forget(ClientId client) {
  members_.erase(client);
  departing_.erase(client);
  holds_.forget(client);
  if (separation_.forget(client) && !over_) separationChanged();
  for (const auto& [epoch, worker] : workers_) worker->forgetReports(client);
}

GroupClient* WorkerGroup::memberOf(ClientId client) const {
  for (const auto* members : {&members_, &departing_}) {
    const auto found = members->find(client);
    if (found != members->end()) return found->second;
  }
  return nullptr;
}

std::vector<uint32_t> WorkerGroup::leastUsedSlots(PoolId pool, uint32_t count,
                                                  ClientId client) const {
  std::vector<std::pair<size_t, uint32_t>> slots;  // members, index
  const std::vector<Quarantine> quarantines = slotTable_.quarantinedSlots(services_.loop.now());
  std::vector<Slot> all = slotTable_.slotsOf(pool);
  const auto isVacant = [&](const Slot& slot) {
    return std::any_of(quarantines.begin(), quarantines.end(),
                       [&](const Quarantine& each) { return each.slot == slot; });
  };
  const std::vector<uint32_t> own = separation_.slotsOf(client, all.size());
  const auto isOwn = [&](const Slot& slot) {
    return std::find(own.begin(), own.end(), slot.index) != own.end();
  };
  const bool ownServes = std::any_of(
      all.begin(), all.end(), [&](const Slot& slot) { return isOwn(slot) && !isVacant(slot); });
  if (ownServes) std::erase_if(all, [&](const Slot& slot) { return !isOwn(slot); });
  const bool noneServes = std::all_of(all.begin(), all.end(), isVacant);
  for (const Slot& slot : all) {
    if (!noneServes && isVacant(slot)) continue;
    const auto users = std::count_if(members_.begin(), members_.end(),
                                     [&](const auto& entry) { return entry.second->uses(slot); });
    slots.emplace_back(static_cast<size_t>(users), slot.index);
  }
  std::sort(slots.begin(), slots.end());
  std::vector<uint32_t> chosen;
  for (uint32_t i = 0; i < count && !slots.empty(); ++i) {
    chosen.push_back(slots[i % slots.size()].second);
  }
  return chosen;
}

void WorkerGroup::introduce(Worker& worker, GroupClient& member) {
  const std::optional<SlotTable::SlotAssignment> assignment =
      slotTable_.assignmentOf(worker.epoch());
  if (!assignment || (assignment->slot && !member.uses(*assignment->slot))) return;
  // Objects that a member makes ahead of its calls are code of it that runs in the worker.
  if (!assignment->slot && separation_.active()) return;
  if (holds_.isHeld(member.id(), services_.loop.now())) return;  // scheduleHoldEnd() does it later
  services_.stock.take([self = self_.weak(), epoch = worker.epoch(), id = member.id()](
                           ChannelMemory memory, const std::string& failure) {
    WorkerGroup* alive = self.get();
    if (alive == nullptr) return;
    alive->introduceWith(epoch, id, std::move(memory), failure);
  });
}

// For a member that no longer has a channel to the worker, or does not have one yet.
void WorkerGroup::introduceAnew(Epoch epoch, ClientId client) {
  Worker* worker = find(epoch);
  const auto member = members_.find(client);
  if (worker == nullptr || worker->stage() != Worker::Stage::kReady || retires(epoch) ||
      member == members_.end() || worker->attachment(client) != nullptr) {
    return;
  }
  if (worker->reportsOf(client) < kMostReports) return introduce(*worker, *member->second);
  const std::string text = describe(*worker) + " has no channel to " + member->second->describe() +
                           " until it is replaced: this client reported it " +
                           std::to_string(kMostReports) + " times, but it answers";
  base::log(base::LogLevel::kWarning, text);
  for (const auto& [key, served] : serving_) {
    const Slot slot{PoolId(key.first), key.second};
    if (served == epoch && member->second->uses(slot)) {
      member->second->slotQuarantined(
          {.slot = slot, .deaths = 0, .duration = base::Milliseconds(0)}, text);
    }
  }
}

void WorkerGroup::introduceWith(Epoch epoch, ClientId client, ChannelMemory memory,
                                const std::string& failure) {
  Worker* worker = find(epoch);
  const auto member = members_.find(client);
  if (worker == nullptr || worker->stage() != Worker::Stage::kReady || member == members_.end()) {
    return;
  }
  if (worker->attachment(client) != nullptr) return;
  if (!failure.empty()) return channelNotMade(*worker, failure);
  worker->introduce(client, std::move(memory));
  const std::optional<SlotTable::SlotAssignment> assignment = slotTable_.assignmentOf(epoch);
  member->second->introduce(*worker, assignment && !assignment->slot);
  ipc::reachCrashPoint(CrashPoint::kWorkerIntroduced);
}

// A worker that other members call is kept: a member without a channel waits until memory for one
// can be allocated.
void WorkerGroup::channelNotMade(Worker& worker, const std::string& failure) {
  if (members_.size() == 1) {
    return worker.lose(DeathCause::kNotStarted, "no shared memory for its channel: " + failure);
  }
  if (channelRetry_.isSet()) return;
  if (const auto leftOut = channelFailureRate_.next(services_.loop.now())) {
    base::log(
        base::LogLevel::kError,
        describe(worker) + ": no shared memory for a channel, will retry: " + failure + *leftOut);
  }
  channelRetry_.setAfter(kChannelRetry, [this] { introduceMissing(); });
}

void WorkerGroup::introduceMissing() {
  for (const auto& [epoch, worker] : workers_) {
    for (const auto& [id, member] : members_) {
      if (worker->reportsOf(id) < kMostReports) introduceAnew(epoch, id);
    }
  }
}

void WorkerGroup::workerAttached(Worker& worker, ClientId client) {
  const auto member = members_.find(client);
  if (member == members_.end()) return;
  for (const auto& [key, epoch] : serving_) {
    if (epoch != worker.epoch()) continue;
    serveIfAttached(*member->second, Slot{PoolId(key.first), key.second}, epoch);
  }
}

void WorkerGroup::workerDetached(Worker& worker, ClientId client) {
  const auto member = members_.find(client);
  if (member != members_.end()) {
    if (worker.attachment(client)->stage != Attachment::Stage::kDetaching) {
      return member->second->onChannelCorrupt();
    }
    member->second->channelClosed(worker.epoch());
    tellOwnQuarantine(*member->second);
    // In a later handler: the worker still has the old channel until this returns.
    services_.loop.post([self = self_.weak(), epoch = worker.epoch(), client] {
      if (WorkerGroup* alive = self.get()) alive->introduceAnew(epoch, client);
    });
    return;
  }
  const auto departing = departing_.find(client);
  if (departing != departing_.end()) departing->second->channelClosed(worker.epoch());
}

void WorkerGroup::serveIfAttached(GroupClient& member, const Slot& slot, Epoch epoch) {
  Worker* worker = find(epoch);
  if (worker == nullptr || !member.uses(slot)) return;
  const Attachment* attachment = worker->attachment(member.id());
  if (attachment != nullptr && attachment->usable()) member.slotServed(slot, epoch);
}

}  // namespace isopool::supervisor
