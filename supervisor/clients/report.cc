// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/clients/report.h"

#include <unistd.h>

#include <cstring>

#include "ipc/channel/status_page.h"
#include "ipc/control/frame.h"
#include "supervisor/clients/shared_client.h"

namespace isopool::supervisor {

namespace {

constexpr uint64_t kNanosecondsPerMillisecond = 1'000'000;

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

// The status page's times are those of monotonicNow(), the same clock as the loop's.
void readStatusPage(const Worker& worker, base::TimePoint now, ipc::ReportedWorker& entry) {
  // One copy of the page: the worker may change it at any time.
  alignas(ipc::WorkerStatusPage) std::byte bytes[sizeof(ipc::WorkerStatusPage)];
  if (::pread(worker.statusPage().get(), bytes, sizeof bytes, 0) != sizeof bytes) return;
  const auto number = [&](size_t offset) {
    uint64_t value = 0;
    std::memcpy(&value, bytes + offset, sizeof value);
    return value;
  };
  uint32_t waiting = 0;
  std::memcpy(&waiting, bytes + offsetof(ipc::WorkerStatusPage, waitingClients), sizeof waiting);
  entry.runningClient = number(offsetof(ipc::WorkerStatusPage, runningClient));
  if (entry.runningClient != 0) {
    const auto since = static_cast<int64_t>(number(offsetof(ipc::WorkerStatusPage, runningSince)));
    const int64_t ran = std::chrono::nanoseconds(now.time_since_epoch()).count() - since;
    if (ran > 0)
      entry.runningMilliseconds = static_cast<uint64_t>(ran) / kNanosecondsPerMillisecond;
    entry.waitingClients = waiting;
  }
  entry.lentBlocks = number(offsetof(ipc::WorkerStatusPage, lentBlocks));
  entry.lentBytes = number(offsetof(ipc::WorkerStatusPage, lentBytes));
  entry.zombieBytes = number(offsetof(ipc::WorkerStatusPage, zombieBytes));
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
  for (const auto& [epoch, worker] : group.workers()) {
    ipc::ReportedWorker entry;
    entry.epoch = epoch.value;
    entry.processId = worker->pid();
    entry.group = group.name();
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
    for (const auto& [client, attachment] : worker->attachments()) {
      entry.outputBytes += attachment.outputBytes();
    }
    readStatusPage(*worker, now, entry);
    for (const auto& [act, times] : worker->forbiddenActs()) {
      entry.forbiddenActs.push_back({act, times});
    }
    report.sharedBytes += worker->sharedBytes();
    report.workers.push_back(std::move(entry));
  }
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
    report.slots.push_back(std::move(entry));
  }
}

void makeFit(ipc::Report& report) {
  // The decoder's limit of elements per array.
  constexpr size_t kMostElements = 4000;
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
    for (ipc::ReportedModel& model : report.models) shorten(model.clients, most);
    for (ipc::ReportedWorker& worker : report.workers) shorten(worker.forbiddenActs, most);
    if (ipc::encodeBody(report).size() <= ipc::kMaxBodyBytes) return;
  }
}

}  // namespace isopool::supervisor
