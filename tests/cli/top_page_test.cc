// SPDX-License-Identifier: BSD-3-Clause
#include "cli/top_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <clocale>
#include <string>
#include <vector>

#include "base/terminal_text.h"
#include "cli/keys.h"
#include "cli/styled_text.h"
#include "cli/wording.h"
#include "ipc/control/operator_messages.h"

namespace isopool::cli {
namespace {

using Key = Keys::Key;

std::vector<Key> keysOf(const std::vector<Keys::Press>& presses) {
  std::vector<Key> keys;
  for (const Keys::Press& press : presses) keys.push_back(press.key);
  return keys;
}

TEST(Keys, ReadsArrowsAndPagesAlsoInParts) {
  Keys keys;
  EXPECT_EQ(keysOf(keys.read("\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[4~j")),
            (std::vector<Key>{Key::kUp, Key::kDown, Key::kPageUp, Key::kPageDown, Key::kHome,
                              Key::kEnd, Key::kCharacter}));
  EXPECT_TRUE(keys.read("\x1b").empty());
  EXPECT_TRUE(keys.read("[").empty());
  EXPECT_EQ(keysOf(keys.read("A")), std::vector<Key>{Key::kUp});
}

TEST(Keys, IgnoresUnknownSequencesAndGoesOn) {
  Keys keys;
  const auto presses = keys.read("\x1b[1;5C\x1bxq");
  EXPECT_EQ(keysOf(presses), (std::vector<Key>{Key::kCharacter, Key::kCharacter}));
  EXPECT_EQ(presses.back().character, 'q');
  keys.read("\x1b[" + std::string(100, '1'));
  EXPECT_EQ(keysOf(keys.read("q")), std::vector<Key>{Key::kCharacter});
}

// Forty workers and forty clients.
ipc::Report largeReport() {
  ipc::Report report;
  report.state = "serving";
  report.version = "0.1.0";
  report.zygoteProcessId = 7;
  report.groups.push_back({.name = "shared"});
  for (uint64_t number = 1; number <= 40; ++number) {
    ipc::ReportedWorker& worker = report.workers.emplace_back();
    worker.epoch = number;
    worker.processId = 1'000'000 + static_cast<int32_t>(number);
    worker.group = "shared";
    worker.slot = static_cast<int32_t>(number) - 1;
    worker.state = "serving";
    worker.completedCalls = 123'456'789;
    worker.ageMilliseconds = 1'051'200'000;
    worker.runningClient = number;
    worker.runningMilliseconds = 250'000;
    worker.waitingClients = 12;
    worker.privateBytes = 500u << 20;
    worker.lentBlocks = 1000;
    worker.lentBytes = 10u << 20;
    worker.zombieBytes = 100;
    worker.threads = 128;
    worker.processorMilliseconds = 12'000'000;
    worker.forbiddenActs.push_back({"file", 7});
    report.slots.push_back({"shared", static_cast<uint32_t>(number) - 1, 3,
                            "SIGKILL (killed from outside: by another process)", 3200, 0});
    ipc::ReportedClient& client = report.clients.emplace_back();
    client.number = number;
    client.processId = 1'000'000 + static_cast<int32_t>(number);
    client.program = "a_program_of_long_name";
    client.clientClass = "interactive";
    client.state = "attached";
    client.queuedCalls = 1234;
    client.runningCalls = 12;
    client.completedCalls = 123'456'789;
    client.inputBytes = client.packageBytes = client.outputBytes = 500u << 20;
    client.refusals = client.overdueCalls = client.handles = 5;
  }
  return report;
}

Rates someRates() {
  Rates rates{12'345, {}, {}};
  for (uint64_t number = 1; number <= 40; ++number) {
    rates.ofWorkers[number] = rates.ofClients[number] = 12'345;
  }
  return rates;
}

class TopPage : public testing::Test {
 protected:
  std::vector<std::string> page(size_t rows = 24, size_t columns = 80) {
    std::vector<std::string> lines;
    for (const Line& line : view_.page(report_, someRates(), "  at 12:00:00", rows, columns)) {
      lines.push_back(painted(line, Colours::kNo));
    }
    return lines;
  }
  TopView::Outcome type(char character) { return view_.press({Key::kCharacter, character}); }
  // The first line with this part; empty if there is none.
  static std::string lineWith(const std::vector<std::string>& lines, const std::string& part) {
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
    return found != lines.end() ? *found : "";
  }

  ipc::Report report_ = largeReport();
  TopView view_;
};

TEST_F(TopPage, KeepsTheColumnsThatMatterOnASmallTerminal) {
  const std::vector<std::string> lines = page();
  EXPECT_EQ(lines.size(), 24u);
  for (const std::string& line : lines) {
    // A finding that is too wide is cut when it is drawn.
    if (!line.starts_with("! ")) {
      EXPECT_LE(base::columnsOf(line), 80u) << line;
    }
  }
  const std::string workers = lineWith(lines, "SLOT");
  for (const char* heading : {"CALLS/S", "RUNNING", "PRIVATE"}) {
    EXPECT_NE(workers.find(heading), std::string::npos) << workers;
  }
  const std::string clients = lineWith(lines, "CLIENT  ");
  for (const char* heading : {"PROGRAM", "QUEUED", "RUNNING", "CALLS/S", "MEMORY"}) {
    EXPECT_NE(clients.find(heading), std::string::npos) << clients;
  }
  EXPECT_NE(lines.front().find("? help"), std::string::npos) << lines.front();
}

TEST_F(TopPage, ShowsAllInAFile) {
  const std::vector<std::string> lines = page(SIZE_MAX, SIZE_MAX);
  EXPECT_GT(lines.size(), 80u);
  EXPECT_NE(lineWith(lines, "LAST DEATH"), "");
  EXPECT_EQ(lines.front().find("? help"), std::string::npos);
}

TEST_F(TopPage, Scrolls) {
  type('p');
  EXPECT_NE(lineWith(page(), "shared/0 "), "");
  EXPECT_EQ(lineWith(page(), " above"), "");
  view_.press({Key::kDown});
  EXPECT_EQ(lineWith(page(), "shared/0 "), "");
  EXPECT_NE(lineWith(page(), "shared/1 "), "");
  EXPECT_NE(lineWith(page(), ", 1 above"), "");
  view_.press({Key::kPageDown});
  EXPECT_EQ(lineWith(page(), "shared/1 "), "");
  view_.press({Key::kEnd});
  view_.press({Key::kDown});
  EXPECT_NE(lineWith(page(), "shared/39 "), "");
  view_.press({Key::kHome});
  view_.press({Key::kUp});
  EXPECT_NE(lineWith(page(), "shared/0 "), "");
  EXPECT_NE(lineWith(page(), "#1 "), "");
  type('\t');
  view_.press({Key::kEnd});
  EXPECT_NE(lineWith(page(), "shared/0 "), "") << "only the other table moves";
  EXPECT_NE(lineWith(page(), " #40 "), "");
}

TEST_F(TopPage, FollowsAListThatBecomesShorter) {
  view_.press({Key::kEnd});
  page();
  report_.workers.resize(3);
  report_.slots.clear();
  report_.clients.clear();
  const std::vector<std::string> lines = page();
  for (const char* slot : {"shared/0 ", "shared/1 ", "shared/2 "}) {
    EXPECT_NE(lineWith(lines, slot), "") << slot;
  }
}

TEST_F(TopPage, HasAHelpThatNamesEachKey) {
  EXPECT_EQ(type('?'), TopView::Outcome::kChanged);
  const std::vector<std::string> lines = page();
  EXPECT_LE(lines.size(), 24u);
  for (const char key : {'q', '?', 'c', 't', 'w', 'm', 'p'}) {
    EXPECT_NE(lineWith(lines, std::string(1, key) + "   "), "") << key;
  }
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << line;
  type('?');
  EXPECT_NE(lineWith(page(), "SLOT"), "");
  EXPECT_EQ(type('x'), TopView::Outcome::kIgnored);
  EXPECT_EQ(type('q'), TopView::Outcome::kEnd);
}

TEST_F(TopPage, FitsTerminalsOfAnySize) {
  for (const size_t rows : {1, 2, 5, 6, 7, 8, 9, 10, 11, 24, 100}) {
    for (const size_t columns : {1, 20, 80, 200}) page(rows, columns);
  }
  report_.workers.clear();
  report_.clients.clear();
  EXPECT_NE(lineWith(page(), "no client"), "");
}

TEST_F(TopPage, ShowsThreeFindingsAtMost) {
  const std::vector<std::string> lines = page();
  EXPECT_NE(lineWith(lines, "more findings, see isopool status"), "");
}

}  // namespace
}  // namespace isopool::cli
