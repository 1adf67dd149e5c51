// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/clients/report.h"

#include <algorithm>
#include <utility>

#include "ipc/control/frame.h"
#include "supervisor/clients/shared_client.h"
#include "supervisor/pool/worker_status.h"

namespace isopool::supervisor {

namespace {

constexpr uint64_t kNanosecondsPerMillisecond = 1'000'000;
// The decoder's limit of elements per array.
constexpr size_t kMostElements = 4000;

uint64_t milliseconds(base::TimePoint::duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<base::Milliseconds>(time).count());
}

std::string stateOf(const WorkerGroup& group, const Worker& worker) {
  if (worker.stage() == Worker::Stage::kDying) return "dying";
  if (group.retires(worker.epoch())) return "retiring";
  if (worker.stage() != Worker::Stage::kReady) return "starting";
  const std::optional<SlotTable::SlotAssignment> assignment =
      group.slotTable().assignmentOf(worker.epoch());
  return assignment && assignment->slot ? "serving" : "spare";
}

void addStatus(const Worker& worker, base::TimePoint now, ipc::ReportedWorker& entry) {
  WorkerStatus status = readStatusPage(worker.statusPage());
  entry.runningClient = status.runningClient;
  if (entry.runningClient != 0) {
    const int64_t ran =
        std::chrono::nanoseconds(now.time_since_epoch()).count() - status.runningSince;
    if (ran > 0)
      entry.runningMilliseconds = static_cast<uint64_t>(ran) / kNanosecondsPerMillisecond;
    entry.waitingClients = status.waitingClients;
    entry.runningModel = std::move(status.model);
  }
  entry.lentBlocks = status.lentBlocks;
  entry.lentBytes = status.lentBytes;
  entry.zombieBytes = status.zombieBytes;
  entry.models = std::move(status.models);
}

ipc::ReportedGroup reportTotals(WorkerGroup& group, base::TimePoint now) {
  const GroupTotals& totals = group.totals();
  ipc::ReportedGroup entry;
  entry.name = group.name();
  entry.completedCalls = totals.calls();
  entry.processorMilliseconds = milliseconds(totals.processorTime());
  entry.restarts = group.restarts();
  entry.recycled = group.recycled();
  for (size_t cause = 0; cause < kDeathCauses; ++cause) {
    entry.deaths.push_back({kDeathCauseNames[cause], totals.deaths()[cause]});
  }
  entry.recentDeaths = totals.recentDeaths(now);
  entry.quarantines = totals.quarantines();
  entry.quarantinedSlots = group.slotTable().quarantinedSlots(now).size();
  entry.clientQuarantines = totals.clientQuarantines();
  entry.quarantinedClients = group.quarantinedClients();
  for (const auto& [kind, times] : totals.denials()) entry.denials.push_back({kind, times});
  const GroupTotals::Starts& starts = totals.starts();
  for (const base::Milliseconds bound : GroupTotals::Starts::kBounds) {
    entry.starts.bounds.push_back(milliseconds(bound));
  }
  entry.starts.counts.assign(starts.counts.begin(), starts.counts.end());
  entry.starts.sumMilliseconds = milliseconds(starts.sum);
  entry.spares = group.slotTable().spares();
  return entry;
}

}  // namespace

void reportGroup(WorkerGroup& group, const Services& services, ipc::Report& report) {
  const base::TimePoint now = services.loop.now();
  Processes& processes = services.processes;
  const uint64_t ofZygote =
      report.zygoteProcessId != 0 ? processes.residentAnonymousBytes(report.zygoteProcessId) : 0;
  report.restarts += group.restarts();
  report.recycled += group.recycled();
  report.unfit += group.unfit();
  report.groups.push_back(reportTotals(group, now));
  report.recentMilliseconds = milliseconds(GroupTotals::kRecent);
  for (const auto& [epoch, worker] : group.workers()) {
    ipc::ReportedWorker entry;
    entry.epoch = epoch.value;
    entry.processId = worker->pid();
    entry.group = group.name();
    entry.gpu = worker->gpu();
    entry.stopped = worker->isStopped();
    entry.state = stateOf(group, *worker);
    const std::optional<SlotTable::SlotAssignment> assignment =
        group.slotTable().assignmentOf(epoch);
    if (assignment && assignment->slot) entry.slot = static_cast<int32_t>(assignment->slot->index);
    entry.ageMilliseconds = milliseconds(now - worker->bornAt());
    entry.completedCalls = worker->completedCalls();
    entry.clients = static_cast<uint32_t>(worker->attachments().size());
    const uint64_t anonymous =
        worker->pid() != 0 ? processes.residentAnonymousBytes(worker->pid()) : 0;
    entry.privateBytes = anonymous > ofZygote ? anonymous - ofZygote : 0;
    if (worker->pid() != 0) {
      const Processes::Use use = processes.useOf(worker->pid());
      entry.processorMilliseconds = milliseconds(use.processorTime);
      entry.threads = use.threads;
      const Processes::Tree tree = processes.treeOf(worker->pid());
      entry.startedProcesses = tree.processes;
      entry.startedZombies = tree.zombies;
      entry.startedBytes = tree.bytes;
    }
    for (const auto& [client, attachment] : worker->attachments()) {
      entry.outputBytes += attachment.outputBytes();
    }
    addStatus(*worker, now, entry);
    for (const auto& [act, times] : worker->forbiddenActs()) {
      entry.forbiddenActs.push_back({act, times});
    }
    report.sharedBytes += worker->sharedBytes();
    report.workers.push_back(std::move(entry));
  }
  const std::vector<Quarantine> quarantines = group.slotTable().quarantinedSlots(now);
  for (const Slot& slot : group.slotTable().slotsOf(kSharedPool)) {
    ipc::ReportedSlot entry;
    entry.group = group.name();
    entry.slot = slot.index;
    const auto lastExit = group.lastExits().find({slot.pool.value, slot.index});
    if (lastExit != group.lastExits().end()) {
      entry.restarts = lastExit->second.restarts;
      entry.lastDeath = lastExit->second.reason;
      entry.lastDeathMillisecondsAgo = milliseconds(now - lastExit->second.at);
    }
    const auto quarantine =
        std::find_if(quarantines.begin(), quarantines.end(),
                     [&](const Quarantine& each) { return each.slot.index == slot.index; });
    if (quarantine != quarantines.end()) {
      entry.quarantineMilliseconds = milliseconds(quarantine->duration);
    }
    report.slots.push_back(std::move(entry));
  }
}

void makeFit(ipc::SettingsInForce& message) {
  for (size_t most = kMostElements; most > 0; most /= 2) {
    if (message.settings.size() > most) {
      message.settings.resize(most);
      message.complete = false;
    }
    if (ipc::encodeBody(message).size() <= ipc::kMaxBodyBytes) return;
  }
}

void makeFit(ipc::Report& report) {
  const auto shorten = [&](auto& list, size_t most) {
    if (list.size() <= most) return;
    list.resize(most);
    report.complete = false;
  };
  for (size_t most = kMostElements; most > 0; most /= 2) {
    shorten(report.models, most);
    shorten(report.clients, most);
    shorten(report.workers, most);
    shorten(report.slots, most);
    shorten(report.groups, most);
    shorten(report.classes, most);
    shorten(report.needRestart, most);
    for (ipc::ReportedModel& model : report.models) shorten(model.clients, most);
    for (ipc::ReportedWorker& worker : report.workers) {
      shorten(worker.forbiddenActs, most);
      shorten(worker.models, most);
    }
    for (ipc::ReportedClass& each : report.classes) shorten(each.models, most);
    if (ipc::encodeBody(report).size() <= ipc::kMaxBodyBytes) return;
  }
}

}  // namespace isopool::supervisor
