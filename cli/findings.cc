// SPDX-License-Identifier: BSD-3-Clause
#include "cli/findings.h"

#include <algorithm>

#include "cli/wording.h"

namespace isopool::cli {

namespace {

constexpr uint64_t kLongCallMilliseconds = 30'000;
constexpr size_t kLongestName = 40;

std::string nameOf(const ipc::ReportedWorker& worker) {
  return "worker " + std::to_string(worker.processId);
}

std::string nameOfClient(const ipc::Report& report, uint64_t number) {
  const std::string name = "client " + std::to_string(number);
  const ipc::ReportedClient* client = findClient(report, number);
  if (client == nullptr) return name + " (disconnected)";
  return name + " (" + terminalText(client->program, kLongestName) + ", pid " +
         std::to_string(client->processId) + ")";
}

void findOfWorker(const ipc::Report& report, const ipc::ReportedWorker& worker,
                  std::vector<std::string>& found) {
  if (worker.runningClient != 0 && worker.runningMilliseconds >= kLongCallMilliseconds) {
    found.push_back(nameOf(worker) + " has been running one call for " +
                    wordsForDuration(worker.runningMilliseconds) + ", of " +
                    nameOfClient(report, worker.runningClient));
  }
  for (const ipc::ReportedCount& act : worker.forbiddenActs) {
    found.push_back("the sandbox denied " + nameOf(worker) + " the action " +
                    terminalText(act.name) + ", " + counted(act.count, "time"));
  }
}

}  // namespace

Totals totalsOf(const ipc::Report& report) {
  Totals totals;
  for (const ipc::ReportedWorker& worker : report.workers) {
    ++(worker.state == "serving" ? totals.servingWorkers
       : worker.state == "spare" ? totals.spareWorkers
                                 : totals.otherWorkers);
    totals.lentBlocks += worker.lentBlocks;
    totals.lentBytes += worker.lentBytes;
    totals.zombieBytes += worker.zombieBytes;
    totals.completedCalls += worker.completedCalls;
    totals.runningCalls += worker.runningClient != 0 ? 1 : 0;
  }
  for (const ipc::ReportedClient& client : report.clients) totals.queuedCalls += client.queuedCalls;
  for (const ipc::ReportedModel& model : report.models) totals.modelBytes += model.bytes;
  return totals;
}

const ipc::ReportedClient* findClient(const ipc::Report& report, uint64_t number) {
  const auto found =
      std::find_if(report.clients.begin(), report.clients.end(),
                   [&](const ipc::ReportedClient& client) { return client.number == number; });
  return found != report.clients.end() ? &*found : nullptr;
}

const ipc::ReportedSlot* slotOf(const ipc::Report& report, const ipc::ReportedWorker& worker) {
  const auto found =
      std::find_if(report.slots.begin(), report.slots.end(), [&](const ipc::ReportedSlot& slot) {
        return slot.group == worker.group && static_cast<int64_t>(slot.slot) == worker.slot;
      });
  return found != report.slots.end() ? &*found : nullptr;
}

const ipc::ReportedWorker* workerOf(const ipc::Report& report, const ipc::ReportedSlot& slot) {
  const auto found = std::find_if(report.workers.begin(), report.workers.end(),
                                  [&](const ipc::ReportedWorker& worker) {
                                    return worker.group == slot.group && worker.state != "dying" &&
                                           worker.slot == static_cast<int64_t>(slot.slot);
                                  });
  return found != report.workers.end() ? &*found : nullptr;
}

std::vector<std::string> findings(const ipc::Report& report) {
  std::vector<std::string> found;
  if (report.state == "starting") found.push_back("no worker serves yet: Python is starting");
  if (report.state == "draining") {
    found.push_back(
        "the supervisor is stopping: it completes the calls in flight and refuses new ones");
  }
  if (report.state == "serving" && totalsOf(report).servingWorkers == 0) {
    found.push_back("no worker serves: calls wait");
  }
  if (report.zygoteProcessId == 0 && report.state == "serving") {
    found.push_back("the zygote is down: dead workers are not replaced until a new zygote runs");
  }
  if (const size_t missing = report.missingProtections.size(); missing != 0) {
    found.push_back("the sandbox is weaker than " + terminalText(report.sandbox) + ": " +
                    counted(missing, "protection") + (missing == 1 ? " is" : " are") + " missing");
  }
  for (const ipc::ReportedSlot& slot : report.slots) {
    if (workerOf(report, slot) != nullptr) continue;
    std::string text = "slot " + std::to_string(slot.slot) + " of " + terminalText(slot.group);
    text += slot.restarts == 0 ? " has had no worker yet"
                               : " has no worker; its last one died " +
                                     wordsForDuration(slot.lastDeathMillisecondsAgo) +
                                     " ago: " + terminalText(slot.lastDeath);
    found.push_back(std::move(text));
  }
  if (!report.complete) {
    found.push_back("the lists are incomplete: a report has no room for all entries");
  }
  for (const ipc::ReportedWorker& worker : report.workers) findOfWorker(report, worker, found);
  return found;
}

}  // namespace isopool::cli
