// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include "base/utf8.h"
#include "cli/findings.h"
#include "cli/metrics/listen_address.h"
#include "cli/metrics/metric_family.h"
#include "cli/metrics/report_metrics.h"
#include "ipc/control/operator_messages.h"

namespace isopool::cli {
namespace {

using enum MetricFamily::Type;

TEST(MetricFamily, HasHelpTypeAndALineForEachSeries) {
  MetricFamily family("isopool_things_total", kCounter, "Things.");
  EXPECT_EQ(family.text(), "");
  family.add({}, 3);
  family.add({{"group", "shared"}, {"slot", "0"}}, 18'446'744'073'709'551'615u);
  EXPECT_EQ(family.text(),
            "# HELP isopool_things_total Things.\n"
            "# TYPE isopool_things_total counter\n"
            "isopool_things_total 3\n"
            "isopool_things_total{group=\"shared\",slot=\"0\"} 18446744073709551615\n");
}

TEST(MetricFamily, SeriesOfTheSameLabelsAreOneWithTheSum) {
  MetricFamily family("isopool_time_seconds", kGauge, "Time.");
  family.addMilliseconds({{"slot", "spare"}}, 1250);
  family.addMilliseconds({{"slot", "0"}}, 2000);
  family.addMilliseconds({{"slot", "spare"}}, 800);
  EXPECT_EQ(family.text(),
            "# HELP isopool_time_seconds Time.\n"
            "# TYPE isopool_time_seconds gauge\n"
            "isopool_time_seconds{slot=\"spare\"} 2.05\n"
            "isopool_time_seconds{slot=\"0\"} 2\n");
}

TEST(MetricFamily, BucketsOfAHistogramAreCumulative) {
  MetricFamily family("isopool_start_seconds", kHistogram, "Start.");
  family.addDurations({{"group", "g"}}, {5'000, 1'000'000}, {2, 0, 1}, 3'007'000);
  EXPECT_EQ(family.text(),
            "# HELP isopool_start_seconds Start.\n"
            "# TYPE isopool_start_seconds histogram\n"
            "isopool_start_seconds_bucket{group=\"g\",le=\"0.005\"} 2\n"
            "isopool_start_seconds_bucket{group=\"g\",le=\"1\"} 2\n"
            "isopool_start_seconds_bucket{group=\"g\",le=\"+Inf\"} 3\n"
            "isopool_start_seconds_sum{group=\"g\"} 3.007\n"
            "isopool_start_seconds_count{group=\"g\"} 3\n");
}

TEST(MetricFamily, CountsThatDoNotFitTheBoundsAreInTheLastBucket) {
  for (const std::vector<uint64_t>& counts :
       {std::vector<uint64_t>{}, std::vector<uint64_t>{1}, std::vector<uint64_t>{1, 1, 1, 1}}) {
    MetricFamily family("isopool_start_seconds", kHistogram, "Start.");
    family.addDurations({}, {5'000}, counts, 0);
    const std::string text = family.text();
    EXPECT_NE(text.find("isopool_start_seconds_count " + std::to_string(counts.size())),
              std::string::npos)
        << text;
  }
}

TEST(LabelText, FollowsTheRulesOfTheFormat) {
  EXPECT_EQ(labelText("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
  EXPECT_EQ(labelText("\xc3\xa9\xe6\xa8\xa1"), "\xc3\xa9\xe6\xa8\xa1");
  EXPECT_EQ(labelText("\x1b[2J\xff\x7f"), "\xef\xbf\xbd[2J\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(labelText(std::string("a\0b", 3)),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(labelText(std::string(1000, 'x')), std::string(128, 'x'));
}

// Every string of the report comes from another process.
ipc::Report hostileReport() {
  const std::string text = "\"} 1\nisopool_up 7\n\\\xff\x1b";
  ipc::Report report;
  report.version = report.pythonVersion = report.torchVersion = report.sandbox = text;
  report.state = report.address = text;
  report.missingProtections = {text};
  report.lostLogLines = report.droppedOutput = {{text, 1}, {text, 2}};
  report.groups.push_back({.name = text, .deaths = {{text, 1}, {text, 2}}, .denials = {{text, 1}}});
  report.groups.push_back({.name = text, .starts = {{1, 2}, {1, 2, 3, 4}, 5}});
  report.classes.push_back({.name = text, .refusals = {{text, 1}, {text, 1}}});
  report.slots.push_back({.group = text, .lastDeath = text});
  for (uint64_t epoch : {1, 2}) {
    report.workers.push_back({.epoch = epoch, .group = text, .state = text});
  }
  for (uint64_t number : {1, 2}) {
    report.clients.push_back(
        {.number = number, .program = text, .clientClass = text, .state = text});
  }
  for (int model = 0; model < 1000; ++model) report.models.push_back({text, 1, text, {1}});
  return report;
}

TEST(ReportMetrics, HoldNoLineThatAnotherProcessWrote) {
  std::istringstream lines(metricsText(hostileReport()));
  std::set<std::string> series;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.starts_with("isopool_") || line.starts_with("# ")) << line;
    EXPECT_NE(line, "isopool_up 7");
    for (std::string_view rest = line; !rest.empty();) {
      const base::Character character = base::firstCharacter(rest);
      ASSERT_TRUE(character.valid && !base::isControlCharacter(character.code)) << line;
      rest.remove_prefix(character.bytes);
    }
    if (line.starts_with("# ")) continue;
    EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second) << "twice: " << line;
  }
  EXPECT_EQ(series.count("isopool_up"), 1u);
}

TEST(ReportMetrics, HaveLostLinesByLevelAndTheLongestStallOfAClass) {
  ipc::Report report;
  report.lostLogLines = {{"info", 5}, {"output", 7}};
  report.droppedOutput = {{"rate", 2}, {"quota", 3}};
  report.memoryUsed = 900;
  report.memoryLimit = 1000;
  report.classes.push_back({.name = "trader"});
  for (const uint64_t time : {2000, 61'000, 0}) {
    report.clients.push_back({.clientClass = "trader", .stalledMilliseconds = time});
  }
  const std::string text = metricsText(report);
  for (const char* line :
       {"isopool_log_lines_lost_total{level=\"info\"} 5", "isopool_memory_used_bytes 900",
        "isopool_log_lines_lost_total{level=\"output\"} 7", "isopool_memory_limit_bytes 1000",
        "isopool_worker_lines_dropped_total{reason=\"quota\"} 3",
        "isopool_client_stalled_seconds{class=\"trader\"} 61"}) {
    EXPECT_NE(text.find(std::string("\n") + line + "\n"), std::string::npos) << line << text;
  }
}

TEST(ReportMetrics, NameNoMoreThanFiftyModels) {
  ipc::Report report;
  for (uint64_t number = 1; number <= 1000; ++number) {
    report.models.push_back({"model " + std::to_string(number), number, "", {1, 2}});
  }
  const std::string text = metricsText(report);
  EXPECT_NE(text.find("isopool_models 1000\n"), std::string::npos);
  EXPECT_NE(text.find("isopool_model_bytes{model=\"model 951\",digest=\"\"} 951\n"),
            std::string::npos);
  EXPECT_EQ(text.find("model=\"model 950\""), std::string::npos);
  EXPECT_NE(text.find("isopool_model_bytes{model=\"others\",digest=\"\"} 451725\n"),
            std::string::npos);
  EXPECT_NE(text.find("isopool_model_clients{model=\"others\",digest=\"\"} 1900\n"),
            std::string::npos);
}

TEST(ReportMetrics, AddUpModelsWithoutADigestThatHaveOneName) {
  ipc::Report report;
  report.models = {{"app.py:make", 100, "", {1}},
                   {"app.py:make", 30, "", {2}},
                   {"bert.pt", 7, "0123456789abcdef", {1}},
                   {"bert.pt", 5, "fedcba9876543210", {2}}};
  const std::string text = metricsText(report);
  for (const char* line : {"isopool_model_bytes{model=\"app.py:make\",digest=\"\"} 130",
                           "isopool_model_clients{model=\"app.py:make\",digest=\"\"} 2",
                           "isopool_model_bytes{model=\"bert.pt\",digest=\"0123456789ab\"} 7",
                           "isopool_model_bytes{model=\"bert.pt\",digest=\"fedcba987654\"} 5"}) {
    EXPECT_NE(text.find(std::string("\n") + line + "\n"), std::string::npos) << line << text;
  }
}

TEST(ReportMetrics, ASupervisorThatDoesNotAnswerIsDown) {
  const std::string text = metricsTextOfUnreachable();
  EXPECT_NE(text.find("\nisopool_up 0\n"), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST(ListenAddress, IsALoopbackAddressOrAUnixSocket) {
  for (const char* right : {"unix:/run/isopool/metrics.sock", "127.0.0.1:9464", "127.1.2.3:0",
                            "[::1]:9464", "localhost:9464"}) {
    EXPECT_NO_THROW(ListenAddress::parse(right)) << right;
  }
  const std::string tooLong = "unix:/tmp/" + std::string(200, 'a');
  for (const char* wrong : {"0.0.0.0:9464", "[::]:9464", "192.168.1.7:9464", "10.0.0.1:80",
                            "[fe80::1]:80", "[::ffff:10.0.0.1]:80", "example.org:80", ":9464",
                            "9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
                            "127.0.0.1:1x", "unix:", "", tooLong.c_str()}) {
    try {
      ListenAddress::parse(wrong);
      ADD_FAILURE() << wrong << " was accepted";
    } catch (const AddressRefused& refused) {
      EXPECT_EQ(std::string(refused.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(Findings, WorkersOfAModelAreThoseOfTheClass) {
  ipc::Report report;
  for (const char* group : {"shared", "shared", "vip"}) {
    ipc::ReportedWorker worker;
    worker.group = group;
    worker.models = {"app.py:model"};
    report.workers.push_back(worker);
  }
  report.workers.front().models = {};
  EXPECT_EQ(workersThatLoaded(report, "app.py:model", "vip"), 1u);
  EXPECT_EQ(workersThatLoaded(report, "app.py:model", "without workers of its own"), 1u);
  EXPECT_EQ(workersThatLoaded(report, "app.py:model", ""), 1u);
  EXPECT_EQ(workersThatLoaded(report, "another", "vip"), 0u);
}

}  // namespace
}  // namespace isopool::cli
