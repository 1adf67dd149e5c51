// SPDX-License-Identifier: BSD-3-Clause
#include "base/log/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <climits>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/fd.h"

namespace isopool::base {
namespace {

/// The line with 0 in place of each number.
std::string withoutNumbers(const std::string& line) {
  std::string out;
  bool inNumber = false;
  for (const char each : line) {
    const bool isDigit = std::isdigit(static_cast<unsigned char>(each)) != 0;
    if (!isDigit) out += each;
    if (isDigit && !inNumber) out += '0';
    inNumber = isDigit;
  }
  return out;
}

/// Redirects the error stream to a pipe during its lifetime.
class LogTest : public testing::Test {
 protected:
  LogTest() : before_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    reader_ = Fd(ends[0]);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
    // The write end blocks, like the pipes of users: only the reading test must not wait.
    ::fcntl(STDERR_FILENO, F_SETFL, 0);
  }
  ~LogTest() override {
    startLog(LogLevel::kWarning, LogFormat::kText);
    ::dup2(before_.get(), STDERR_FILENO);
  }

  std::string written() {
    std::string text(size_t{1} << 20, '\0');
    const ssize_t length = ::read(reader_.get(), text.data(), text.size());
    text.resize(static_cast<size_t>(length > 0 ? length : 0));
    return text;
  }

 private:
  Fd before_;
  Fd reader_;
};

TEST_F(LogTest, WritesLinesOfItsLevelAndAbove) {
  startLog(LogLevel::kInfo, LogFormat::kText);
  log(LogLevel::kDebug, "not this");
  EXPECT_EQ(written(), "");
  log(LogLevel::kInfo, "this");
  EXPECT_EQ(withoutNumbers(written()), "isopoold[0] 0:0:0.0 info: this\n");
}

TEST_F(LogTest, ChangesItsLevelWhileItRuns) {
  startLog(LogLevel::kWarning, LogFormat::kText);
  log(LogLevel::kInfo, "x");
  EXPECT_EQ(written(), "");
  setLogLevel(LogLevel::kDebug);
  log(LogLevel::kDebug, "x");
  EXPECT_NE(written(), "");
  setLogLevel(LogLevel::kOff);
  log(LogLevel::kError, "x");
  EXPECT_EQ(written(), "");
}

TEST_F(LogTest, GivesTheJournalThePriorityOfEachLine) {
  struct stat status {};
  ASSERT_EQ(::fstat(STDERR_FILENO, &status), 0);
  const std::string stream = std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
  ::setenv("JOURNAL_STREAM", stream.c_str(), 1);
  startLog(LogLevel::kDebug, LogFormat::kJson);
  for (const auto& [level, begin] :
       {std::pair{LogLevel::kError, "<3>{"}, std::pair{LogLevel::kWarning, "<4>{"},
        std::pair{LogLevel::kInfo, "<6>{"}, std::pair{LogLevel::kDebug, "<7>{"}}) {
    log(level, "x");
    const std::string line = written();
    EXPECT_TRUE(line.starts_with(begin)) << line;
  }
  // The stream was redirected after the service manager had opened it.
  ::setenv("JOURNAL_STREAM", (stream + "1").c_str(), 1);
  startLog(LogLevel::kInfo, LogFormat::kJson);
  log(LogLevel::kInfo, "x");
  EXPECT_TRUE(written().starts_with("{"));
  ::unsetenv("JOURNAL_STREAM");
}

TEST_F(LogTest, PutsFieldsBehindTheText) {
  startLog(LogLevel::kInfo, LogFormat::kText);
  log(LogLevel::kInfo, "a client came",
      {{"client", 7u}, {"program", "my program"}, {"name", "x"}, {"lag", -1}, {"old", false}});
  const std::string line = written();
  EXPECT_TRUE(
      line.ends_with("a client came client=7 program=\"my program\" name=x lag=-1 old=false\n"))
      << line;
}

TEST_F(LogTest, LetsNoControlCharacterOfATextReachATerminal) {
  startLog(LogLevel::kInfo, LogFormat::kText);
  log(LogLevel::kInfo,
      "act \x1b[2J\r\nisopoold[1] 0:0:0.0 error: forged \xc2\x9b"
      "31m \x7f caf\xc3\xa9");
  const std::string line = written();
  EXPECT_TRUE(
      line.ends_with("act ?[2J?\n    isopoold[1] 0:0:0.0 error: forged ?31m ? caf\xc3\xa9\n"))
      << line;
}

// A terminal that reads eight-bit codes treats 0x9b like 0x1b 0x5b.
TEST_F(LogTest, LetsNoByteOfATextReachATerminalThatIsNoUtf8) {
  startLog(LogLevel::kInfo, LogFormat::kText);
  log(LogLevel::kInfo,
      "act \x9b"
      "2J \x80\xff caf\xc3\xa9",
      {{"name",
        "a\x9b"
        "2J\xc2\x9b"
        "b"}});
  const std::string line = written();
  EXPECT_TRUE(
      line.ends_with("act ?2J ?? caf\xc3\xa9 name=\"a\xef\xbf\xbd"
                     "2J\\u009bb\"\n"))
      << line;
}

TEST_F(LogTest, CutsATextBetweenCharacters) {
  startLog(LogLevel::kInfo, LogFormat::kText);
  for (size_t before = 0; before < 4; ++before) {
    std::string text(before, 'x');
    for (int i = 0; i < 2000; ++i) text += "\xe2\x82\xac";
    log(LogLevel::kInfo, text);
    const std::string line = written();
    EXPECT_TRUE(line.ends_with("\xe2\x82\xac...\n")) << line.substr(line.size() - 10);
  }
}

TEST_F(LogTest, WritesJsonWithTimeLevelAndProcess) {
  startLog(LogLevel::kInfo, LogFormat::kJson);
  log(LogLevel::kWarning, "said \"no\"\n{braces} \\", {{"client", 7u}, {"text", "a\tb"}});
  const std::string line = written();
  EXPECT_NE(line.find(",\"pid\":" + std::to_string(::getpid()) + ","), std::string::npos) << line;
  EXPECT_EQ(withoutNumbers(line),
            R"({"time":"0-0-0T0:0:0.0Z","level":"warning","pid":0,)"
            R"("message":"said \"no\"\n{braces} \\","client":0,"text":"a\tb"})"
            "\n");
}

TEST_F(LogTest, AutomaticallyIsJsonOffATerminal) {
  startLog(LogLevel::kInfo, LogFormat::kAuto);
  log(LogLevel::kInfo, "x");
  EXPECT_EQ(written().substr(0, 9), "{\"time\":\"");
}

TEST_F(LogTest, KeepsALineWithinWhatAPipeTakesAtOnce) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    startLog(LogLevel::kInfo, format);
    const std::string longText(20'000, '"');
    log(LogLevel::kInfo, longText, {{"first", longText}, {"second", longText}, {"third", 3}});
    const std::string line = written();
    EXPECT_LE(line.size(), static_cast<size_t>(PIPE_BUF));
    EXPECT_GE(line.size(), static_cast<size_t>(PIPE_BUF) - 200);
    EXPECT_EQ(line.back(), '\n');
    EXPECT_NE(line.find("third"), std::string::npos);
    if (format == LogFormat::kJson) {
      EXPECT_TRUE(line.ends_with("}\n"));
    }
  }
}

TEST_F(LogTest, LosesLinesInsteadOfWaitingForAReaderAndSaysHowMany) {
  startLog(LogLevel::kInfo, LogFormat::kJson);
  int behind = 0;
  onLogBehind([&] { ++behind; });
  const LostLines before = lostLines();
  for (int i = 0; i < 10'000; ++i) log(LogLevel::kInfo, std::string(500, 'x'));
  logOutput(LogLevel::kInfo, "from a model", {});
  log(LogLevel::kWarning, "a worker died");
  onLogBehind(nullptr);
  EXPECT_EQ(behind, 1);
  EXPECT_FALSE(continueLog());
  const uint64_t lines = lostLines()[1] - before[1];
  EXPECT_GT(lines, 9000u);
  EXPECT_EQ(lostLines()[4], before[4] + 1) << "the output";
  EXPECT_EQ(lostLines()[2], before[2]) << "the warning";
  EXPECT_FALSE(written().empty());
  EXPECT_TRUE(continueLog());
  const std::string late = written();
  EXPECT_NE(late.find("\"message\":\"a worker died\""), std::string::npos) << late;
  EXPECT_NE(late.find("\"level\":\"warning\",\"pid\":"), std::string::npos) << late;
  EXPECT_NE(late.find(std::to_string(lines + 1) + " lines of the log were lost since "),
            std::string::npos)
      << late;
  EXPECT_TRUE(late.ends_with(", because: the log's reader does not read\",\"lost_info\":" +
                             std::to_string(lines) + ",\"lost_output\":1}\n"))
      << late;
  log(LogLevel::kInfo, "heard again");
  EXPECT_NE(written().find("heard again"), std::string::npos);
}

}  // namespace
}  // namespace isopool::base
