// SPDX-License-Identifier: BSD-3-Clause
#include "cli/findings.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/terminal_text.h"
#include "cli/wording.h"

namespace isopool::cli {

namespace {

constexpr uint64_t kLongCallMilliseconds = 30'000;
constexpr size_t kLongestName = 40;
// Of deaths within Report::recentMilliseconds: fewer are handled without a loss of service.
constexpr uint64_t kManyDeaths = 3;
constexpr uint64_t kMuchOfALimitPercent = 90;

/// Collects findings.
class Found {
 public:
  void problem(std::string text) { all_.push_back({Finding::Severity::kProblem, std::move(text)}); }
  void notice(std::string text) { all_.push_back({Finding::Severity::kNotice, std::move(text)}); }
  std::vector<Finding> take() { return std::move(all_); }

 private:
  std::vector<Finding> all_;
};

std::string nameOf(const ipc::ReportedWorker& worker) {
  return "worker " + std::to_string(worker.processId);
}

std::string nameOfClient(const ipc::Report& report, uint64_t number) {
  const std::string name = "client " + std::to_string(number);
  const ipc::ReportedClient* client = findClient(report, number);
  if (client == nullptr) return name + " (disconnected)";
  return name + " (" + base::terminalText(client->program, kLongestName) + ", pid " +
         std::to_string(client->processId) + ")";
}

void findOfWorker(const ipc::Report& report, const ipc::ReportedWorker& worker, Found& found) {
  if (worker.stopped) {
    found.problem(nameOf(worker) + " has been stopped by a signal: kill -CONT continues it");
  }
  if (worker.runningClient != 0 && worker.runningMilliseconds >= kLongCallMilliseconds) {
    found.notice(nameOf(worker) + " has been running one call for " +
                 wordsForDuration(worker.runningMilliseconds) + ", of " +
                 nameOfClient(report, worker.runningClient));
  }
  for (const ipc::ReportedCount& act : worker.forbiddenActs) {
    found.notice("the sandbox denied " + nameOf(worker) + " the action " +
                 base::terminalText(act.name) + ", " + counted(act.count, "time"));
  }
}

std::string vacancyOf(const ipc::ReportedSlot& slot) {
  const std::string name =
      "slot " + std::to_string(slot.slot) + " of " + base::terminalText(slot.group, kLongestName);
  if (slot.restarts == 0) return name + " has had no worker yet";
  std::string text = name + " has no worker; its last one died " +
                     wordsForDuration(slot.lastDeathMillisecondsAgo) +
                     " ago: " + base::terminalText(slot.lastDeath);
  if (slot.quarantineMilliseconds == 0) return text;
  return text + "; it is in quarantine for another " +
         wordsForDuration(slot.quarantineMilliseconds);
}

uint64_t sumOf(const std::vector<ipc::ReportedCount>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0},
                         [](uint64_t sum, const auto& each) { return sum + each.count; });
}

// The causes of all deaths of the group: ": crash 9, killed 1", the most frequent first.
std::string causesOf(const ipc::ReportedGroup& group) {
  std::vector<ipc::ReportedCount> causes;
  for (const ipc::ReportedCount& each : group.deaths) {
    if (each.count != 0) causes.push_back(each);
  }
  std::stable_sort(causes.begin(), causes.end(),
                   [](const auto& one, const auto& other) { return one.count > other.count; });
  std::string text;
  for (const ipc::ReportedCount& each : causes) {
    text += (text.empty() ? "; causes since the start: " : ", ") + base::terminalText(each.name) +
            " " + std::to_string(each.count);
  }
  return text;
}

std::string listOf(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& each : names) {
    text += (text.empty() ? "" : ", ") + base::terminalText(each, kLongestName);
  }
  return text;
}

bool isNear(uint64_t number, uint64_t limit) {
  return limit != 0 && number >= limit - limit * (100 - kMuchOfALimitPercent) / 100;
}

void findOfClient(const ipc::Report& report, const ipc::ReportedClient& client, Found& found) {
  if (client.quarantineMilliseconds == 0) return;
  found.problem(nameOfClient(report, client.number) + " " + base::terminalText(client.quarantine) +
                "; " + wordsForDuration(client.quarantineMilliseconds) + " are left");
}

void findNearLimits(const ipc::Report& report, Found& found) {
  const auto programs = static_cast<uint64_t>(
      std::count_if(report.clients.begin(), report.clients.end(),
                    [](const ipc::ReportedClient& client) { return client.state != "greeting"; }));
  if (report.clientLimit != 0 && programs >= report.clientLimit) {
    found.problem(std::to_string(programs) +
                  " programs are connected, which is the limit: the next one is refused "
                  "(max_clients)");
  }
  if (!report.lackOfDescriptors.empty()) {
    found.problem("the next program is refused: " + base::terminalText(report.lackOfDescriptors));
  } else if (isNear(report.openDescriptors, report.descriptorLimit)) {
    found.problem("the supervisor has " + std::to_string(report.openDescriptors) + " of " +
                  std::to_string(report.descriptorLimit) +
                  " descriptors open: connections and messages soon wait (LimitNOFILE, ulimit -n)");
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
    totals.runningCalls += worker.runningClient != 0 ? 1 : 0;
  }
  for (const ipc::ReportedGroup& group : report.groups) {
    totals.completedCalls += group.completedCalls;
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

uint64_t workersThatLoaded(const ipc::Report& report, const std::string& model,
                           const std::string& clientClass) {
  // A class without workers of its own uses those of the group "shared".
  const auto ofClass = [&](const auto& each) { return each.group == clientClass; };
  const bool isDedicated = std::any_of(report.workers.begin(), report.workers.end(), ofClass) ||
                           std::any_of(report.slots.begin(), report.slots.end(), ofClass);
  const std::string group = isDedicated ? clientClass : "shared";
  return static_cast<uint64_t>(
      std::count_if(report.workers.begin(), report.workers.end(), [&](const auto& worker) {
        if (worker.group != group) return false;
        return std::find(worker.models.begin(), worker.models.end(), model) != worker.models.end();
      }));
}

std::optional<uint64_t> percentileOf(const ipc::ModelCalls& calls, unsigned percent) {
  const uint64_t all = std::accumulate(calls.times.begin(), calls.times.end(), uint64_t{0});
  if (all == 0) return std::nullopt;
  const uint64_t wanted = (all * percent + 99) / 100;
  uint64_t seen = 0;
  for (size_t i = 0; i < calls.times.size() && i < ipc::kCallTimeBounds.size(); ++i) {
    seen += calls.times[i];
    if (seen >= wanted) return ipc::kCallTimeBounds[i];
  }
  return std::nullopt;
}

std::optional<std::string> whyNotReady(const ipc::Report& report) {
  if (report.state == "starting") return "no worker serves yet: Python is starting";
  if (report.state != "serving") {
    return "the supervisor is stopping: it completes the calls in flight and refuses new ones";
  }
  const auto serves = [&](const std::string& group) {
    return std::any_of(
        report.workers.begin(), report.workers.end(), [&](const ipc::ReportedWorker& worker) {
          return worker.state == "serving" && worker.group == group && !worker.stopped;
        });
  };
  for (const ipc::ReportedGroup& group : report.groups) {
    if (!serves(group.name)) {
      return "no worker of " + base::terminalText(group.name, kLongestName) + " serves: calls wait";
    }
  }
  return std::nullopt;
}

std::vector<Finding> findings(const ipc::Report& report) {
  Found found;
  if (const auto why = whyNotReady(report)) found.problem(*why);
  if (report.zygoteProcessId == 0 && report.state == "serving") {
    found.problem("the zygote is down: dead workers are not replaced until a new zygote runs");
  }
  for (const ipc::ReportedSlot& slot : report.slots) {
    if (workerOf(report, slot) == nullptr) found.problem(vacancyOf(slot));
  }
  for (const ipc::ReportedGroup& group : report.groups) {
    if (group.recentDeaths >= kManyDeaths) {
      found.problem(std::to_string(group.recentDeaths) + " workers of " +
                    base::terminalText(group.name, kLongestName) + " died in the last " +
                    wordsForDuration(report.recentMilliseconds) + causesOf(group));
    }
  }
  for (const ipc::ReportedClient& client : report.clients) findOfClient(report, client, found);
  findNearLimits(report, found);
  if (!report.reloadFailure.empty()) {
    found.problem("the last reload failed, and no setting has changed: " +
                  base::terminalText(report.reloadFailure));
  }
  if (const size_t missing = report.missingProtections.size(); missing != 0) {
    found.notice("the sandbox is weaker than " + base::terminalText(report.sandbox) + ": " +
                 counted(missing, "protection") + (missing == 1 ? " is" : " are") + " missing");
  }
  if (!report.complete) {
    found.notice("the lists are incomplete: a report has no room for all entries");
  }
  if (report.successor == "starting") {
    found.notice("another supervisor is being started, which takes over");
  } else if (!report.successor.empty()) {
    found.notice("the last restart failed: " + base::terminalText(report.successor));
  }
  if (!report.needRestart.empty()) {
    found.notice("settings that changed in the file need a restart: " + listOf(report.needRestart));
  }
  for (const ipc::ReportedClient& client : report.clients) {
    if (client.state == "paused") {
      found.notice(nameOfClient(report, client.number) + " is paused: its calls wait");
    }
  }
  for (const ipc::ReportedWorker& worker : report.workers) findOfWorker(report, worker, found);
  for (const ipc::ReportedClient& client : report.clients) {
    if (client.stalledMilliseconds < kLongCallMilliseconds) continue;
    found.notice(nameOfClient(report, client.number) + " has had calls queued for " +
                 wordsForDuration(client.stalledMilliseconds) + ", and none has completed");
  }
  if (const uint64_t lines = sumOf(report.lostLogLines); lines != 0) {
    found.notice("the log has lost " + counted(lines, "line") +
                 " since the start, because its disk was full or its reader did not read");
  }
  return found.take();
}

bool hasProblem(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity == Finding::Severity::kProblem;
  });
}

}  // namespace isopool::cli
