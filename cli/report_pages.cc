// SPDX-License-Identifier: BSD-3-Clause
#include "cli/report_pages.h"

#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/terminal_text.h"
#include "cli/findings.h"
#include "cli/sorting.h"
#include "cli/wording.h"

namespace isopool::cli {

namespace {

using Alignment = Table::Alignment;

constexpr size_t kLongestName = 40;
constexpr size_t kLongestPath = 60;
constexpr size_t kLongestProgram = 24;
constexpr size_t kShortDigest = 12;
constexpr size_t kLabelWidth = 10;
constexpr const char* kNotYet = "-";

Emphasis emphasisOf(const std::string& state) {
  if (state == "serving") return Emphasis::kGood;
  if (state == "spare" || state == "attached") return Emphasis::kNone;
  return state == "dying" ? Emphasis::kAlarm : Emphasis::kWarning;
}

Span stateSpan(const std::string& state) { return {base::terminalText(state), emphasisOf(state)}; }

Span unlessZero(uint64_t number, Emphasis emphasis = Emphasis::kNone) {
  return {number != 0 ? std::to_string(number) : "", emphasis};
}

std::string rateOf(const std::map<uint64_t, double>& rates, uint64_t key) {
  const auto found = rates.find(key);
  return found != rates.end() ? wordsForRate(found->second) : kNotYet;
}

std::string placeOf(const std::string& group, int64_t slot) {
  return slot < 0 ? base::terminalText(group, kLongestName)
                  : base::terminalText(group, kLongestName) + "/" + std::to_string(slot);
}

std::string deathOf(const ipc::ReportedSlot& slot) {
  if (slot.lastDeath.empty()) return "";
  return wordsForDuration(slot.lastDeathMillisecondsAgo) +
         " ago: " + base::terminalText(slot.lastDeath);
}

std::string lent(uint64_t blocks, uint64_t bytes) {
  return blocks == 0 ? "" : wordsForBytes(bytes) + " in " + std::to_string(blocks);
}

std::string tagOf(uint64_t client) {
  std::string tag(1, '#');
  return tag += std::to_string(client);
}

std::string runningIn(const ipc::Report& report, const ipc::ReportedWorker& worker) {
  if (worker.runningClient == 0) return "";
  const ipc::ReportedClient* client = findClient(report, worker.runningClient);
  return tagOf(worker.runningClient) + " " +
         (client != nullptr ? base::terminalText(client->program, kLongestProgram) : "(gone)") +
         ", " + wordsForDuration(worker.runningMilliseconds);
}

uint64_t forbiddenIn(const ipc::ReportedWorker& worker) {
  uint64_t times = 0;
  for (const ipc::ReportedCount& act : worker.forbiddenActs) times += act.count;
  return times;
}

// Processes that its user code has started: "64 MB in 3", and what has ended unwaited for.
Span startedBy(const ipc::ReportedWorker& worker) {
  std::string text = lent(worker.startedProcesses, worker.startedBytes);
  if (worker.startedZombies == 0) return {text};
  if (!text.empty()) text += ", ";
  return {text + counted(worker.startedZombies, "zombie"), Emphasis::kWarning};
}

Line labelled(std::string label, std::string text, Emphasis emphasis = Emphasis::kNone) {
  label.resize(kLabelWidth, ' ');
  return {{std::move(label), Emphasis::kFaint}, {std::move(text), emphasis}};
}

Line titleOf(const ipc::Report& report) {
  return {{"isopoold " + base::terminalText(report.version), Emphasis::kStrong},
          {"  "},
          stateSpan(report.state),
          {"  pid " + std::to_string(report.processId) + "  up " +
           wordsForDuration(report.uptimeMilliseconds)}};
}

std::string workersIn(const Totals& totals) {
  std::string text =
      std::to_string(totals.servingWorkers) + " serving, " + counted(totals.spareWorkers, "spare");
  if (totals.otherWorkers > 0) {
    text += ", " + std::to_string(totals.otherWorkers) + " starting or ending";
  }
  return text;
}

std::string memoryIn(const ipc::Report& report, const Totals& totals) {
  return wordsForBytes(report.sharedBytes) + " shared; " + wordsForBytes(totals.lentBytes) +
         " lent in " + counted(totals.lentBlocks, "result") + ", " +
         wordsForBytes(totals.zombieBytes) + " zombie";
}

// Empty if there were none.
std::string unfitIn(const ipc::Report& report) {
  return report.unfit == 0 ? "" : ", " + std::to_string(report.unfit) + " left unfit by user code";
}

std::string restartsIn(const ipc::Report& report) {
  return counted(report.restarts, "worker") + " died and replaced, " +
         std::to_string(report.recycled) + " recycled" + unfitIn(report) + "; zygote " +
         counted(report.zygoteRestarts, "time");
}

std::string versionsIn(const ipc::Report& report) {
  if (report.pythonVersion.empty()) return "not known yet";
  return base::terminalText(report.pythonVersion) + ", torch " +
         base::terminalText(report.torchVersion);
}

void appendSandbox(const ipc::Report& report, Page& page) {
  page.push_back(labelled("sandbox", base::terminalText(report.sandbox)));
  for (const std::string& missing : report.missingProtections) {
    page.push_back(labelled("", "missing: " + base::terminalText(missing), Emphasis::kWarning));
  }
}

void appendFindings(const ipc::Report& report, Page& page) {
  for (const Finding& finding : findings(report)) {
    const bool isProblem = finding.severity == Finding::Severity::kProblem;
    page.push_back({{"! ", isProblem ? Emphasis::kAlarm : Emphasis::kWarning},
                    {finding.text, isProblem ? Emphasis::kWarning : Emphasis::kNone}});
  }
}

Table workersTable(bool rates) {
  Table table;
  table.addColumn("SLOT");
  table.addColumn("STATE", Alignment::kLeft, 1);
  table.addColumn("PID", Alignment::kRight, 3);
  table.addColumn("AGE", Alignment::kRight, 5);
  table.addColumn(rates ? "CALLS/S" : "", Alignment::kRight);
  table.addColumn("CALLS", Alignment::kRight, 4);
  table.addColumn("CLIENTS", Alignment::kRight, 5);
  table.addColumn("RUNNING");
  table.addColumn("MODEL", Alignment::kLeft, 1);
  table.addColumn("LOADED", Alignment::kRight, 6);
  table.addColumn("WAITING", Alignment::kRight, 1);
  table.addColumn("CPU", Alignment::kRight, 2);
  table.addColumn("THREADS", Alignment::kRight, 6);
  table.addColumn("PRIVATE", Alignment::kRight);
  table.addColumn("STARTED", Alignment::kRight, 5);
  table.addColumn("LENT", Alignment::kRight, 5);
  table.addColumn("ZOMBIE", Alignment::kRight, 6);
  table.addColumn("FORBIDDEN", Alignment::kRight, 4);
  table.addColumn("RESTARTS", Alignment::kRight, 3);
  table.addColumn("LAST DEATH", Alignment::kLeft, 7);
  return table;
}

Page loadedModels(const ipc::Report& report) {
  if (report.models.empty()) return {{{"no model"}}};
  Table table;
  table.addColumn("MODEL");
  table.addColumn("SIZE", Alignment::kRight);
  table.addColumn("DIGEST");
  table.addColumn("CLIENTS");
  for (const ipc::ReportedModel& model : report.models) {
    std::string clients;
    for (const uint64_t number : model.clients) {
      const ipc::ReportedClient* client = findClient(report, number);
      if (!clients.empty()) clients += ", ";
      clients += tagOf(number);
      if (client != nullptr)
        clients.append(" ").append(base::terminalText(client->program, kLongestProgram));
    }
    table.addRow({{base::terminalPath(model.name, kLongestPath)},
                  {wordsForBytes(model.bytes)},
                  {model.digest.empty() ? kNotYet
                                        : base::terminalText(model.digest.substr(0, kShortDigest))},
                  {clients}});
  }
  return table.page();
}

std::string wordsForPercentile(const ipc::ModelCalls& calls, unsigned percent) {
  if (calls.answered == 0) return kNotYet;
  const std::optional<uint64_t> bound = percentileOf(calls, percent);
  return bound ? "<= " + wordsForMicroseconds(*bound)
               : "> " + wordsForMicroseconds(ipc::kCallTimeBounds.back());
}

// Empty if no program has reported calls.
Page callsByModel(const ipc::Report& report) {
  Table table;
  table.addColumn("CALLS OF");
  table.addColumn("CLASS");
  table.addColumn("ANSWERED", Alignment::kRight);
  table.addColumn("FAILED", Alignment::kRight);
  table.addColumn("MEAN", Alignment::kRight);
  table.addColumn("HALF", Alignment::kRight);
  table.addColumn("99 %", Alignment::kRight);
  table.addColumn("WORKERS", Alignment::kRight);
  for (const ipc::ReportedClass& each : report.classes) {
    for (const ipc::ModelCalls& calls : each.models) {
      table.addRow(
          {{base::terminalText(calls.model, kLongestName)},
           {base::terminalText(each.name, kLongestProgram)},
           {std::to_string(calls.answered)},
           unlessZero(calls.failed, Emphasis::kWarning),
           {calls.answered != 0 ? wordsForMicroseconds(calls.sumMicroseconds / calls.answered)
                                : kNotYet},
           {wordsForPercentile(calls, 50)},
           {wordsForPercentile(calls, 99)},
           {std::to_string(workersThatLoaded(report, calls.model, each.name))}});
    }
  }
  return table.empty() ? Page() : table.page();
}

}  // namespace

Page statusPage(const ipc::Report& report) {
  const Totals totals = totalsOf(report);
  Page page{titleOf(report)};
  page.push_back(labelled("address", base::terminalText(report.address)));
  page.push_back(labelled("python", versionsIn(report)));
  appendSandbox(report, page);
  page.push_back(labelled("workers", workersIn(totals)));
  page.push_back(labelled("calls", std::to_string(totals.runningCalls) + " running, " +
                                       std::to_string(totals.queuedCalls) + " queued, " +
                                       std::to_string(totals.completedCalls) + " completed"));
  page.push_back(labelled("restarts", restartsIn(report)));
  for (const ipc::ReportedSlot& slot : report.slots) {
    if (slot.restarts == 0) continue;
    page.push_back(labelled("", placeOf(slot.group, slot.slot) + ": " +
                                    counted(slot.restarts, "restart") + ", last " + deathOf(slot)));
  }
  page.push_back(labelled("memory", memoryIn(report, totals)));
  page.push_back(labelled("clients", std::to_string(report.clients.size()) + " connected, " +
                                         counted(report.refusedConnections, "connection") +
                                         " refused"));
  page.push_back(labelled("models", report.models.empty()
                                        ? "none"
                                        : std::to_string(report.models.size()) + " loaded, " +
                                              wordsForBytes(totals.modelBytes)));
  page.push_back({});
  const size_t before = page.size();
  appendFindings(report, page);
  if (page.size() == before) page.push_back({{"nothing is wrong", Emphasis::kGood}});
  return page;
}

Page workersPage(const ipc::Report& report, const std::optional<Rates>& rates, size_t columns) {
  Table table = workersTable(rates.has_value());
  for (const ipc::ReportedWorker& worker : report.workers) {
    const ipc::ReportedSlot* slot = slotOf(report, worker);
    table.addRow({{placeOf(worker.group, worker.slot)},
                  stateSpan(worker.state),
                  {worker.processId != 0 ? std::to_string(worker.processId) : ""},
                  {wordsForDuration(worker.ageMilliseconds)},
                  {rates ? rateOf(rates->ofWorkers, worker.epoch) : ""},
                  {std::to_string(worker.completedCalls)},
                  {std::to_string(worker.clients)},
                  {runningIn(report, worker)},
                  {base::terminalText(worker.runningModel, kLongestProgram)},
                  unlessZero(worker.models.size()),
                  unlessZero(worker.waitingClients),
                  {wordsForDuration(worker.processorMilliseconds)},
                  unlessZero(worker.threads),
                  {wordsForBytes(worker.privateBytes)},
                  startedBy(worker),
                  {lent(worker.lentBlocks, worker.lentBytes)},
                  {worker.zombieBytes != 0 ? wordsForBytes(worker.zombieBytes) : ""},
                  unlessZero(forbiddenIn(worker), Emphasis::kAlarm),
                  unlessZero(slot != nullptr ? slot->restarts : 0),
                  {slot != nullptr ? deathOf(*slot) : ""}});
  }
  for (const ipc::ReportedSlot& slot : report.slots) {
    if (workerOf(report, slot) != nullptr) continue;
    std::vector<Span> cells{{placeOf(slot.group, slot.slot)}, {"none", Emphasis::kAlarm}};
    cells.resize(18);
    cells.push_back(unlessZero(slot.restarts));
    cells.push_back({deathOf(slot)});
    table.addRow(std::move(cells));
  }
  if (table.empty()) return {{{"no worker"}}};
  return table.page(columns);
}

Page clientsPage(const ipc::Report& report, const std::optional<Rates>& rates, size_t columns) {
  if (report.clients.empty()) return {{{"no client"}}};
  Table table;
  table.addColumn("CLIENT", Alignment::kRight);
  table.addColumn("PID", Alignment::kRight, 3);
  table.addColumn("USER", Alignment::kLeft, 5);
  table.addColumn("PROGRAM");
  table.addColumn("CLASS", Alignment::kLeft, 4);
  table.addColumn("SHARE", Alignment::kRight, 6);
  table.addColumn("STATE", Alignment::kLeft, 4);
  table.addColumn("FOR", Alignment::kRight, 6);
  table.addColumn("QUEUED", Alignment::kRight);
  table.addColumn("RUNNING", Alignment::kRight);
  table.addColumn(rates ? "CALLS/S" : "", Alignment::kRight);
  table.addColumn("COMPLETED", Alignment::kRight, 4);
  table.addColumn(rates ? "MEMORY" : "", Alignment::kRight);
  table.addColumn("INPUTS", Alignment::kRight, 5);
  table.addColumn("PACKAGES", Alignment::kRight, 5);
  table.addColumn("RESULTS", Alignment::kRight, 5);
  table.addColumn("MODELS", Alignment::kRight, 6);
  table.addColumn("HANDLES", Alignment::kRight, 5);
  table.addColumn("OVERDUE", Alignment::kRight, 2);
  table.addColumn("REFUSALS", Alignment::kRight, 2);
  for (const ipc::ReportedClient& client : report.clients) {
    table.addRow({{tagOf(client.number)},
                  {std::to_string(client.processId)},
                  {base::terminalText(userName(client.userId), kLongestProgram)},
                  {base::terminalText(client.program, kLongestProgram)},
                  {base::terminalText(client.clientClass, kLongestProgram)},
                  {client.share != 1 ? std::to_string(client.share) : ""},
                  stateSpan(client.state),
                  {wordsForDuration(client.attachedMilliseconds)},
                  {std::to_string(client.queuedCalls)},
                  {std::to_string(client.runningCalls)},
                  {rates ? rateOf(rates->ofClients, client.number) : ""},
                  {std::to_string(client.completedCalls)},
                  {rates ? wordsForBytes(memoryOf(client)) : ""},
                  {wordsForBytes(client.inputBytes)},
                  {wordsForBytes(client.packageBytes)},
                  {wordsForBytes(client.outputBytes)},
                  {std::to_string(client.models)},
                  {lent(client.handles, client.handleBytes)},
                  unlessZero(client.overdueCalls, Emphasis::kWarning),
                  unlessZero(client.refusals, Emphasis::kWarning)});
  }
  return table.page(columns);
}

Page modelsPage(const ipc::Report& report) {
  Page page = loadedModels(report);
  Page calls = callsByModel(report);
  if (calls.empty()) return page;
  page.push_back({});
  page.insert(page.end(), std::make_move_iterator(calls.begin()),
              std::make_move_iterator(calls.end()));
  return page;
}

Page settingsPage(const ipc::SettingsInForce& settings) {
  Table table;
  table.addColumn("SETTING");
  table.addColumn("VALUE");
  table.addColumn("SOURCE");
  table.addColumn("RELOAD");
  for (const ipc::ReportedSetting& setting : settings.settings) {
    table.addRow({{base::terminalText(setting.key, kLongestName)},
                  {setting.value.empty() ? "-" : base::terminalText(setting.value, kLongestPath)},
                  {base::terminalPath(setting.source, kLongestPath)},
                  {setting.reloadable ? "yes" : ""}});
  }
  Page page = table.page();
  if (!settings.complete) page.push_back({{"... more, for which a message has no room"}});
  return page;
}

Page summaryPage(const ipc::Report& report, const std::optional<Rates>& rates) {
  const Totals totals = totalsOf(report);
  Page page{titleOf(report)};
  page.push_back(labelled("workers", workersIn(totals) + "; " + std::to_string(report.restarts) +
                                         " restarted, " + std::to_string(report.recycled) +
                                         " recycled" + unfitIn(report)));
  page.push_back(labelled("calls", (rates ? wordsForRate(rates->total) : std::string(kNotYet)) +
                                       "/s, " + std::to_string(totals.runningCalls) + " running, " +
                                       std::to_string(totals.queuedCalls) + " queued"));
  page.push_back(labelled("memory", memoryIn(report, totals)));
  appendFindings(report, page);
  return page;
}

}  // namespace isopool::cli
