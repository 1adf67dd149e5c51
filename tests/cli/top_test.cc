// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "tests/cli/attached_program.h"
#include "tests/cli/own_supervisor.h"
#include "tests/cli/running_command.h"

namespace isopool::tests {
namespace {

constexpr const char* kEnter = "\x1b[?1049h";
constexpr const char* kLeave = "\x1b[?25h\x1b[?1049l";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> topOf(const OwnSupervisor& supervisor, std::vector<std::string> more = {},
                               const std::string& interval = "100ms") {
  more.insert(more.begin(), {"top", "--socket", supervisor.address(), "--interval", interval});
  return more;
}

TEST(Top, PrintsSoManyPagesWhereThereIsNoTerminal) {
  const OwnSupervisor supervisor;
  AttachedProgram program(supervisor.address(), "trainer");
  const CommandOutcome outcome = runCommand(topOf(supervisor, {"--count", "3"}));
  EXPECT_EQ(outcome.exitCode, 0) << outcome.errors;
  size_t pages = 0;
  for (size_t at = 0; (at = outcome.output.find("isopoold ", at)) != std::string::npos; ++at) {
    ++pages;
  }
  EXPECT_EQ(pages, 3u) << outcome.output;
  EXPECT_EQ(outcome.output.find('\x1b'), std::string::npos);
  EXPECT_TRUE(has(outcome.output, "trainer"));
  EXPECT_TRUE(has(outcome.output, "CALLS/S"));
  EXPECT_GE(outcome.took, milliseconds(200));
}

TEST(Top, CountsCallsPerSecond) {
  const OwnSupervisor supervisor;
  AttachedProgram program(supervisor.address(), "trainer");
  RunningCommand command(topOf(supervisor, {"--json", "--count", "2"}));
  const std::optional<std::string> first = command.nextLine();
  ASSERT_TRUE(first);
  EXPECT_EQ(inJson(*first, "value['calls_per_second'], value['clients'][0]['calls_per_second']"),
            "(None, None)");
  EXPECT_EQ(inJson(*first, "sorted(value)"),
            "['calls_per_second', 'clients', 'models', 'status', 'time_ms', 'workers']");
  const std::optional<std::string> second = command.nextLine();
  ASSERT_TRUE(second);
  EXPECT_EQ(inJson(*second, "value['calls_per_second'], value['clients'][0]['calls_per_second']"),
            "(0.0, 0.0)");
  EXPECT_EQ(command.finish().exitCode, 0);

  RunningCommand busy(topOf(supervisor, {"--json"}));
  ASSERT_TRUE(busy.nextLine());
  for (int i = 0; i < 10; ++i) program.call("hello");
  // The calls happen between two of the reports.
  std::string rate = "0.0";
  while (rate == "0.0") {
    const std::optional<std::string> line = busy.nextLine();
    ASSERT_TRUE(line);
    rate = inJson(*line, "value['clients'][0]['calls_per_second']");
    EXPECT_EQ(inJson(*line,
                     "value['calls_per_second'] == "
                     "max(worker['calls_per_second'] for worker in value['workers'])"),
              "True");
  }
  EXPECT_GT(std::stod(rate), 0);
}

TEST(Top, SeesTheSupervisorDrainAndEnd) {
  const OwnSupervisor supervisor;
  auto program = std::make_optional<AttachedProgram>(supervisor.address(), "trainer");
  RunningCommand command(topOf(supervisor, {"--json"}));
  ASSERT_TRUE(command.nextLine());
  // The program does not acknowledge the drain, so the supervisor waits for it.
  supervisor.signal(SIGTERM);
  std::string state = "serving";
  while (state == "serving") {
    const std::optional<std::string> line = command.nextLine();
    ASSERT_TRUE(line);
    state = inJson(*line, "value['status']['state']");
    if (state == "draining") {
      EXPECT_TRUE(has(inJson(*line, "value['status']['findings'][0]"), "supervisor is stopping"));
    }
  }
  EXPECT_EQ(state, "draining");
  program.reset();
  const CommandOutcome outcome = command.finish();
  EXPECT_EQ(outcome.exitCode, 1);
  EXPECT_TRUE(has(outcome.errors, "has shut down")) << outcome.errors;
}

TEST(Top, EndsAtOnceWhenTheSupervisorIsKilled) {
  const OwnSupervisor supervisor;
  RunningCommand command(topOf(supervisor, {"--json"}, "1h"));
  ASSERT_TRUE(command.nextLine());
  supervisor.signal(SIGKILL);
  const CommandOutcome outcome = command.finish();
  EXPECT_EQ(outcome.exitCode, 1);
  EXPECT_TRUE(has(outcome.errors, "has ended")) << outcome.errors;
}

TEST(Top, RestoresTheTerminalOnQ) {
  const OwnSupervisor supervisor;
  CommandOnTerminal command(topOf(supervisor));
  ASSERT_TRUE(command.waitForText("shared/0"));
  EXPECT_TRUE(has(command.text(), kEnter));
  EXPECT_FALSE(command.terminalIsAsBefore());
  command.type("q");
  EXPECT_EQ(command.finish(), 0);
  EXPECT_TRUE(command.terminalIsAsBefore());
  EXPECT_TRUE(command.text().ends_with(kLeave));
}

TEST(Top, RestoresTheTerminalOnInterruption) {
  const OwnSupervisor supervisor;
  for (const int number : {0, SIGINT, SIGTERM, SIGHUP}) {
    CommandOnTerminal command(topOf(supervisor));
    ASSERT_TRUE(command.waitForText("shared/0"));
    if (number == 0) {
      command.type("\x03");
    } else {
      command.signal(number);
    }
    EXPECT_EQ(command.finish(), 0) << number;
    EXPECT_TRUE(command.terminalIsAsBefore()) << number;
    EXPECT_TRUE(command.text().ends_with(kLeave)) << number;
  }
}

TEST(Top, RestoresTheTerminalWhenTheSupervisorIsKilled) {
  const OwnSupervisor supervisor;
  CommandOnTerminal command(topOf(supervisor, {}, "1h"));
  ASSERT_TRUE(command.waitForText("shared/0"));
  supervisor.signal(SIGKILL);
  EXPECT_EQ(command.finish(), 1);
  EXPECT_TRUE(command.terminalIsAsBefore());
  EXPECT_TRUE(has(command.text(), std::string(kLeave) + "isopool: the supervisor at "));
}

TEST(Top, GivesUpAStoppedSupervisorAndStaysResponsive) {
  const OwnSupervisor supervisor;
  {
    CommandOnTerminal command(topOf(supervisor));
    ASSERT_TRUE(command.waitForText("shared/0"));
    supervisor.signal(SIGSTOP);
    command.type("q");
    EXPECT_EQ(command.finish(), 0);
  }
  supervisor.signal(SIGCONT);
  CommandOnTerminal command(topOf(supervisor));
  ASSERT_TRUE(command.waitForText("shared/0"));
  supervisor.signal(SIGSTOP);
  EXPECT_EQ(command.finish(), 1);
  EXPECT_TRUE(command.terminalIsAsBefore());
  EXPECT_TRUE(has(command.text(), "did not answer")) << command.text();
}

TEST(Top, GivesTheTerminalBackWhileItIsStopped) {
  const OwnSupervisor supervisor;
  CommandOnTerminal command(topOf(supervisor));
  ASSERT_TRUE(command.waitForText("shared/0"));
  command.type("\x1a");
  ASSERT_TRUE(command.waitUntilStopped());
  EXPECT_TRUE(command.terminalIsAsBefore());
  ASSERT_TRUE(command.waitForText(kLeave));
  command.forget();
  command.signal(SIGCONT);
  ASSERT_TRUE(command.waitForText(kEnter));
  ASSERT_TRUE(command.waitForText("shared/0"));
  command.type("q");
  EXPECT_EQ(command.finish(), 0);
  EXPECT_TRUE(command.terminalIsAsBefore());
}

// The visible rows of the last complete frame.
std::vector<std::string> rowsOf(const std::string& text) {
  const size_t end = text.rfind("\x1b[J");
  const size_t begin = text.rfind("\x1b[H", end) + 3;
  std::vector<std::string> rows(1);
  for (size_t at = begin; at < end; ++at) {
    if (text[at] == '\x1b') {
      at = text.find_first_of("mK", at);
    } else if (text[at] == '\n') {
      rows.emplace_back();
    } else if (text[at] != '\r') {
      rows.back() += text[at];
    }
  }
  return rows;
}

TEST(Top, ShowsWhatFitsAndFollowsTheTerminalsSize) {
  const OwnSupervisor supervisor({"--workers", "8"});
  CommandOnTerminal command(topOf(supervisor, {}, "1h"));
  ASSERT_TRUE(command.waitForText("\x1b[J"));
  EXPECT_TRUE(has(command.text(), "shared/7"));
  command.forget();
  command.resize(10, 40);
  ASSERT_TRUE(command.waitForText("\x1b[J"));
  const std::vector<std::string> rows = rowsOf(command.text());
  EXPECT_LE(rows.size(), 10u);
  for (const std::string& row : rows) EXPECT_LE(row.size(), 40u) << row;
  EXPECT_TRUE(has(command.text(), " more"));
  command.type("q");
  EXPECT_EQ(command.finish(), 0);
}

TEST(Top, FollowsItsKeys) {
  const OwnSupervisor supervisor({"--workers", "2"});
  CommandOnTerminal command(topOf(supervisor, {}, "1h"));
  ASSERT_TRUE(command.waitForText("by calls/s  ? help"));
  command.forget();
  command.type("m");
  ASSERT_TRUE(command.waitForText("by memory"));
  command.type("?");
  ASSERT_TRUE(command.waitForText("sort by calls per second"));
  command.forget();
  command.type("?");
  ASSERT_TRUE(command.waitForText("shared/0"));
  command.type("q");
  EXPECT_EQ(command.finish(), 0);
}

TEST(Top, ColoursAreForTerminalsThatWantThem) {
  const OwnSupervisor supervisor;
  constexpr const char* kGreen = "\x1b[32m";
  CommandOnTerminal coloured(topOf(supervisor, {"--count", "1"}));
  EXPECT_EQ(coloured.finish(), 0);
  EXPECT_TRUE(has(coloured.text(), kGreen));
  CommandOnTerminal plain(topOf(supervisor, {"--count", "1"}), {"NO_COLOR=1"});
  EXPECT_EQ(plain.finish(), 0);
  EXPECT_FALSE(has(plain.text(), kGreen));
  EXPECT_TRUE(has(plain.text(), "serving"));
  CommandOnTerminal dumb(topOf(supervisor, {"--count", "1"}), {"TERM=dumb"});
  EXPECT_EQ(dumb.finish(), 0);
  EXPECT_FALSE(has(dumb.text(), "\x1b"));
}

}  // namespace
}  // namespace isopool::tests
