// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/findings.h"
#include "cli/rates.h"
#include "cli/report_json.h"
#include "cli/report_pages.h"
#include "cli/sorting.h"
#include "cli/styled_text.h"
#include "cli/wording.h"
#include "ipc/control/operator_messages.h"
#include "testing/utf8_locale.h"

namespace isopool::cli {
namespace {

using std::chrono::milliseconds;
using tests::Utf8Locale;

ipc::ReportedWorker workerNamed(uint64_t epoch, const std::string& state, int32_t slot) {
  ipc::ReportedWorker worker;
  worker.epoch = epoch;
  worker.processId = static_cast<int32_t>(1000 + epoch);
  worker.group = "shared";
  worker.state = state;
  worker.slot = slot;
  return worker;
}

ipc::ReportedClient clientNamed(uint64_t number, const std::string& program) {
  ipc::ReportedClient client;
  client.number = number;
  client.program = program;
  client.state = "attached";
  return client;
}

std::string textOf(const Page& page) { return painted(page, Colours::kNo); }

TEST(Wording, GivesBytesInTheUnitThatReadsBest) {
  EXPECT_EQ(wordsForBytes(0), "0");
  EXPECT_EQ(wordsForBytes(1023), "1023 B");
  EXPECT_EQ(wordsForBytes(1024), "1.0 KiB");
  EXPECT_EQ(wordsForBytes(4u << 20), "4.0 MiB");
  EXPECT_EQ(wordsForBytes((1u << 20) - 1), "1.0 MiB");
  EXPECT_EQ(wordsForBytes(500u << 20), "500 MiB");
  EXPECT_EQ(wordsForBytes(UINT64_MAX), "16.0 EiB");
}

TEST(Wording, GivesDurationsInOneOrTwoUnits) {
  EXPECT_EQ(wordsForDuration(999), "999 ms");
  EXPECT_EQ(wordsForDuration(3290), "3.2 s");
  EXPECT_EQ(wordsForDuration(59'999), "59.9 s");
  EXPECT_EQ(wordsForDuration(250'000), "4 min 10 s");
  EXPECT_EQ(wordsForDuration(12'000'000), "3 h 20 min");
  EXPECT_EQ(wordsForDuration(1'051'200'000), "12 d 4 h");
}

TEST(Table, AlignsAndLeavesOutEmptyColumns) {
  Table table;
  table.addColumn("NAME");
  table.addColumn("NEVER");
  table.addColumn("SIZE", Table::Alignment::kRight);
  table.addColumn("WHY");
  table.addRow({{"one"}, {""}, {"7"}, {""}});
  table.addRow({{"sixteen"}, {""}, {"12345"}, {"because"}});
  EXPECT_EQ(textOf(table.page()),
            "NAME      SIZE  WHY\n"
            "one          7\n"
            "sixteen  12345  because\n");
}

TEST(StyledText, IsCutByWhatIsSeen) {
  const Line line{{"abc", Emphasis::kAlarm}, {"def"}};
  EXPECT_EQ(painted(line, Colours::kNo), "abcdef");
  EXPECT_EQ(painted(line, Colours::kNo, 4), "abcd");
  EXPECT_EQ(painted(line, Colours::kYes, 2), "\x1b[1;31mab\x1b[0m");
}

// A supervisor with one worker and nothing to find.
ipc::Report healthyReport() {
  ipc::Report report;
  report.state = "serving";
  report.zygoteProcessId = 7;
  report.recentMilliseconds = 300'000;
  report.groups.push_back({.name = "shared"});
  report.workers.push_back(workerNamed(1, "serving", 0));
  return report;
}

std::vector<std::string> textsOf(const ipc::Report& report) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings(report)) texts.push_back(finding.text);
  return texts;
}

TEST(Findings, NameWhatIsWrong) {
  ipc::Report report = healthyReport();
  EXPECT_TRUE(findings(report).empty());
  report.workers.clear();
  EXPECT_EQ(textsOf(report), std::vector<std::string>{"no worker of shared serves: calls wait"});
  EXPECT_TRUE(hasProblem(findings(report)));
  report = healthyReport();

  report.sandbox = "strict";
  report.missingProtections = {"temporary folders in memory: user namespaces are forbidden here"};
  EXPECT_EQ(textsOf(report),
            std::vector<std::string>{"the sandbox is weaker than strict: 1 protection is missing"});
  report.missingProtections.push_back("network");
  EXPECT_EQ(textsOf(report), std::vector<std::string>{
                                 "the sandbox is weaker than strict: 2 protections are missing"});
  EXPECT_FALSE(hasProblem(findings(report))) << "calls are served as they should be";
  report.missingProtections.clear();

  report.slots.push_back({"shared", 1, 3, "killed by SIGSEGV", 3200});
  report.workers[0].runningClient = 5;
  report.workers[0].runningMilliseconds = 45'000;
  report.workers[0].forbiddenActs.push_back({"connect", 2});
  report.clients.push_back(clientNamed(5, "trainer"));
  const std::vector<std::string> found = textsOf(report);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0],
            "slot 1 of shared has no worker; its last one died 3.2 s ago: killed by SIGSEGV");
  EXPECT_EQ(found[1],
            "worker 1001 has been running one call for 45.0 s, of client 5 (trainer, pid 0)");
  EXPECT_EQ(found[2], "the sandbox denied worker 1001 the action connect, 2 times");

  report.workers.push_back(workerNamed(2, "starting", 1));
  EXPECT_EQ(findings(report).size(), 2u) << "a worker is starting for the slot";
  EXPECT_FALSE(hasProblem(findings(report)));
}

TEST(Findings, AFailedReloadIsAProblemAndAChangeThatNeedsARestartANotice) {
  ipc::Report report = healthyReport();
  report.needRestart = {"spares", "environment.A"};
  EXPECT_EQ(textsOf(report),
            std::vector<std::string>{
                "settings that changed in the file need a restart: spares, environment.A"});
  EXPECT_FALSE(hasProblem(findings(report)));
  report.reloadFailure = "/etc/isopool/isopool.toml:2: workers: 0 is too few";
  EXPECT_EQ(textsOf(report).at(0),
            "the last reload failed, and no setting has changed: "
            "/etc/isopool/isopool.toml:2: workers: 0 is too few");
  EXPECT_TRUE(hasProblem(findings(report)));
}

TEST(Findings, TellOfManyRecentDeaths) {
  ipc::Report report = healthyReport();
  report.groups[0].recentDeaths = 2;
  EXPECT_TRUE(findings(report).empty()) << "two deaths were handled";
  report.groups[0].recentDeaths = 10;
  report.groups[0].deaths = {{"killed", 1}, {"overdue", 0}, {"crash", 9}};
  EXPECT_EQ(textsOf(report),
            std::vector<std::string>{"10 workers of shared died in the last 5 min 0 s; causes "
                                     "since the start: crash 9, killed 1"});
  EXPECT_TRUE(hasProblem(findings(report)));
}

TEST(Findings, TellOfAQuarantineAndOfLimitsThatAreMet) {
  ipc::Report report = healthyReport();
  report.slots.push_back({"shared", 1, 3, "SIGSEGV", 3200, 26'000});
  EXPECT_EQ(textsOf(report),
            std::vector<std::string>{"slot 1 of shared has no worker; its last one died 3.2 s ago: "
                                     "SIGSEGV; it is in quarantine for another 26.0 s"});
  report = healthyReport();
  report.clients.push_back(clientNamed(5, "trainer"));
  report.clients.back().quarantineMilliseconds = 26'000;
  report.clients.back().quarantine = "gets no further worker for 26000 ms: its model 'm'";
  EXPECT_NE(textsOf(report).at(0).find(" (trainer, pid "), std::string::npos);
  EXPECT_NE(
      textsOf(report).at(0).find(") gets no further worker for 26000 ms: its model 'm'; 26.0 s "
                                 "are left"),
      std::string::npos);
  EXPECT_TRUE(hasProblem(findings(report)));
  report = healthyReport();
  report.clients.push_back(clientNamed(5, "trainer"));
  report.clientLimit = 1;
  report.openDescriptors = 899;
  report.descriptorLimit = 1000;
  EXPECT_EQ(findings(report).size(), 1u);
  report.openDescriptors = 900;
  EXPECT_EQ(findings(report).size(), 2u);
  report.openDescriptors = 55;
  report.descriptorLimit = 60;
  EXPECT_EQ(findings(report).size(), 2u);
  report.openDescriptors = 53;
  EXPECT_EQ(findings(report).size(), 1u);
}

TEST(Readiness, NeedsAWorkerOfEachGroup) {
  ipc::Report report = healthyReport();
  EXPECT_FALSE(whyNotReady(report));
  report.groups.push_back({.name = "interactive"});
  EXPECT_EQ(whyNotReady(report), "no worker of interactive serves: calls wait");
  report.workers.push_back(workerNamed(2, "starting", 0));
  report.workers[1].group = "interactive";
  EXPECT_TRUE(whyNotReady(report));
  report.workers[1].state = "serving";
  EXPECT_FALSE(whyNotReady(report));
  report.workers[1].stopped = true;
  EXPECT_EQ(whyNotReady(report), "no worker of interactive serves: calls wait");
  report.workers[1].stopped = false;
  report.state = "draining";
  EXPECT_TRUE(whyNotReady(report));
  report.state = "starting";
  EXPECT_TRUE(whyNotReady(report));
}

TEST(RateMeter, CountsCallsPerSecondSinceTheReportBefore) {
  ipc::Report report;
  report.workers.push_back(workerNamed(1, "serving", 0));
  report.workers[0].completedCalls = 100;
  report.groups.push_back({.name = "shared", .completedCalls = 100});
  report.clients.push_back(clientNamed(5, "trainer"));
  report.clients[0].completedCalls = 40;
  RateMeter meter;
  const RateMeter::TimePoint start;
  EXPECT_FALSE(meter.compare(report, start));

  report.workers[0].completedCalls = 160;
  report.workers.push_back(workerNamed(2, "serving", 1));
  report.workers[1].completedCalls = 20;
  report.groups[0].completedCalls = 180;
  report.clients[0].completedCalls = 10;
  const auto rates = meter.compare(report, start + milliseconds(2000));
  ASSERT_TRUE(rates);
  EXPECT_DOUBLE_EQ(rates->total, 40);
  EXPECT_DOUBLE_EQ(rates->ofWorkers.at(1), 30);
  EXPECT_DOUBLE_EQ(rates->ofWorkers.at(2), 10);
  EXPECT_DOUBLE_EQ(rates->ofClients.at(5), 0) << "fewer calls than before give no rate";
}

TEST(Sorting, WorkersStandByTheirPlace) {
  ipc::Report report;
  report.workers = {workerNamed(1, "spare", -1), workerNamed(2, "serving", 10),
                    workerNamed(3, "serving", 9)};
  sortByPlace(report);
  EXPECT_EQ(report.workers[0].slot, 9);
  EXPECT_EQ(report.workers[1].slot, 10);
  EXPECT_EQ(report.workers[2].slot, -1);
}

TEST(Sorting, TheBusiestComesFirst) {
  ipc::Report report;
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    report.workers.push_back(workerNamed(epoch, "serving", static_cast<int32_t>(epoch) - 1));
  }
  report.workers[1].runningClient = 5;
  Rates rates;
  rates.ofWorkers[3] = 12;
  sortBy(report, rates, SortOrder::kActivity);
  EXPECT_EQ(report.workers[0].epoch, 3u);
  EXPECT_EQ(report.workers[1].epoch, 2u);
}

TEST(Sorting, OrdersByWhatIsChosen) {
  ipc::Report report;
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    report.workers.push_back(workerNamed(epoch, "serving", static_cast<int32_t>(epoch) - 1));
    report.clients.push_back(clientNamed(epoch, "trainer"));
  }
  report.workers[1].privateBytes = 5;
  report.workers[2].runningMilliseconds = 5;
  report.clients[1].packageBytes = 5;
  report.clients[2].handleBytes = 6;
  report.clients[1].queuedCalls = 1;
  const auto firsts = [&](SortOrder order) {
    sortBy(report, {}, order);
    return std::pair(report.workers[0].epoch, report.clients[0].number);
  };
  EXPECT_EQ(firsts(SortOrder::kMemory), std::pair(uint64_t{2}, uint64_t{3}));
  EXPECT_EQ(firsts(SortOrder::kTime), std::pair(uint64_t{3}, uint64_t{1}));
  EXPECT_EQ(firsts(SortOrder::kQueue), std::pair(uint64_t{1}, uint64_t{2}));
  EXPECT_EQ(firsts(SortOrder::kPlace), std::pair(uint64_t{1}, uint64_t{1}));
}

TEST(Table, LeavesOutTheLeastImportantColumnsIfItIsTooWide) {
  Table table;
  table.addColumn("NAME");
  table.addColumn("AGE", Table::Alignment::kLeft, 2);
  table.addColumn("SIZE", Table::Alignment::kLeft, 1);
  table.addColumn("WHY", Table::Alignment::kLeft, 2);
  table.addRow({{"one"}, {"5"}, {"7"}, {"x"}});
  EXPECT_EQ(textOf(table.page(20)), "NAME  AGE  SIZE  WHY\none   5    7     x\n");
  EXPECT_EQ(textOf(table.page(19)), "NAME  AGE  SIZE\none   5    7\n");
  EXPECT_EQ(textOf(table.page(10)), "NAME  SIZE\none   7\n");
  EXPECT_EQ(textOf(table.page(1)), "NAME\none\n") << "a column of rank 0 stays";
}

TEST(ReportPages, SurviveWhatOtherProcessesCallThemselves) {
  const Utf8Locale locale;
  ipc::Report report;
  report.workers.push_back(workerNamed(1, "\x1b[31mserving", 0));
  report.workers[0].group = "\x07";
  report.workers[0].runningClient = 5;
  report.workers[0].forbiddenActs.push_back({"\x1b]0;title\x07", 1});
  report.slots.push_back({"\x07", 0, 1, "last words\x1b[2J\nmore", 5});
  report.slots.push_back({"\r", 1, 1, "\x1b", 5});
  report.clients.push_back(clientNamed(5, std::string(100'000, '\x1b')));
  report.clients[0].clientClass = "\x1b";
  report.models.push_back({"/tmp/\x1b[2J.pt", 5, "\x1b\x1b", {5}});
  report.version = report.address = report.state = report.sandbox = report.pythonVersion = "\x1b";
  report.missingProtections.push_back("\x1b");
  const Rates rates;
  const std::string all = textOf(statusPage(report)) + textOf(workersPage(report, rates)) +
                          textOf(clientsPage(report, rates)) + textOf(modelsPage(report)) +
                          textOf(summaryPage(report, rates));
  for (const char letter : all) {
    ASSERT_TRUE(letter == '\n' || (letter >= ' ' && letter != 0x7f)) << static_cast<int>(letter);
  }
  EXPECT_LT(all.size(), 10'000u);
}

TEST(ReportPages, AModelWithoutADigestHasADashAndNullInJson) {
  ipc::Report report;
  report.models = {{"app.py:make", 100, "", {1}}, {"bert.pt", 7, "0123456789abcdef", {1}}};
  const std::string text = textOf(modelsPage(report));
  EXPECT_NE(text.find("app.py:make  100 B  -             #1"), std::string::npos) << text;
  EXPECT_NE(text.find("0123456789ab  #1"), std::string::npos) << text;
  const base::Json models = modelsJson(report);
  EXPECT_TRUE(models.at(0).at("digest").is_null());
  EXPECT_EQ(models.at(1).at("digest"), "0123456789abcdef");
}

TEST(ReportPages, ASlotWithoutWorkerIsARow) {
  ipc::Report report;
  report.workers.push_back(workerNamed(1, "serving", 0));
  report.slots.push_back({"shared", 1, 3, "killed by SIGSEGV", 3200});
  const std::string text = textOf(workersPage(report));
  EXPECT_NE(text.find("shared/1  none"), std::string::npos) << text;
  EXPECT_NE(text.find("3.2 s ago: killed by SIGSEGV"), std::string::npos) << text;
}

}  // namespace
}  // namespace isopool::cli
