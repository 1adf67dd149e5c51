// SPDX-License-Identifier: BSD-3-Clause
// What becomes of the log's lines when its stream takes none, or a part of one.
#include "base/log/error_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace isopool::base {
namespace {

namespace fs = std::filesystem;

constexpr auto kInfo = LineKind::kInfo;
constexpr auto kWarning = LineKind::kWarning;
constexpr auto kError = LineKind::kError;
constexpr auto kOutput = LineKind::kOutput;

std::string contentOf(const std::string& path) {
  std::ifstream stream(path);
  return {(std::istreambuf_iterator<char>(stream)), {}};
}

/// Limits the size of the files that this process writes: a write that would exceed it is cut.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uint64_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_;
};

/// A stream whose warnings are "! TEXT", and the error stream as it was when the test ends. A write
/// that waits ends the test's process after 20 s.
class ErrorStreamTest : public testing::Test {
 protected:
  ErrorStreamTest() : before_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    char name[] = "/tmp/isopool-error-stream-XXXXXX";
    folder_ = ::mkdtemp(name);
    ::alarm(20);
  }
  ~ErrorStreamTest() override {
    ::alarm(0);
    ::dup2(before_.get(), STDERR_FILENO);
    fs::remove_all(folder_);
  }

  /// Makes a pipe, a socket or a terminal descriptor 2.
  void use(int descriptor) {
    ::dup2(descriptor, STDERR_FILENO);
    ::close(descriptor);
    stream_.begin();
  }
  std::string path() const { return folder_ + "/logs/isopoold.log"; }
  void useFile() {
    fs::create_directory(folder_ + "/logs");
    ASSERT_EQ(stream_.sendTo(path()), "");
  }
  uint64_t lost(LineKind kind) const { return stream_.lost()[static_cast<size_t>(kind)]; }

  Fd before_;
  std::string folder_;
  ErrorStream stream_{[](const std::string& text, const LostLines*) { return "! " + text + "\n"; }};
};

// "! 2 lines of the log were lost since 2026-...Z, because: " + reason
testing::AssertionResult reports(const std::string& line, const std::string& count,
                                 const std::string& reason) {
  if (line.starts_with("! " + count + " of the log ") && line.find(" lost since 20") != line.npos &&
      line.ends_with("Z, because: " + reason)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << line;
}

std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  size_t at = 0;
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n', at)) {
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (at != text.size()) lines.push_back(text.substr(at) + " (no end)");
  return lines;
}

TEST_F(ErrorStreamTest, AFileThatWasFullHasWholeLinesEachDeathAndWhatWasLost) {
  useFile();
  {
    const FileSizeLimit full(20);
    stream_.write("first line\n", kInfo);
    stream_.write("second line\n", kInfo);  // 9 bytes of it fit
    stream_.write("a worker died\n", kWarning);
    stream_.write("an event\n", kInfo);
    stream_.write("output\n", kOutput);
    stream_.write("another worker died\n", kError);
    EXPECT_TRUE(stream_.isBehind());
    EXPECT_FALSE(stream_.continueWriting());
  }
  EXPECT_TRUE(stream_.continueWriting());
  EXPECT_FALSE(stream_.isBehind());
  stream_.write("next line\n", kInfo);
  const std::vector<std::string> lines = linesOf(contentOf(path()));
  ASSERT_EQ(lines.size(), 6u) << contentOf(path());
  EXPECT_EQ(lines[0], "first line");
  EXPECT_EQ(lines[1], "second line");
  EXPECT_EQ(lines[2], "a worker died");
  EXPECT_EQ(lines[3], "another worker died");
  EXPECT_TRUE(reports(lines[4], "2 lines", "File too large"));
  EXPECT_EQ(lines[5], "next line");
  EXPECT_EQ(lost(kInfo), 1u);
  EXPECT_EQ(lost(kOutput), 1u);
  EXPECT_EQ(lost(kWarning) + lost(kError), 0u);
}

// Each size of the room that is left, down to the report's own line.
TEST_F(ErrorStreamTest, EveryLineIsWholeWhereverTheRoomEnds) {
  for (uint64_t room = 0; room < 200; ++room) {
    fs::remove_all(folder_ + "/logs");
    useFile();
    {
      const FileSizeLimit full(room);
      for (int line = 0; line < 8; ++line) stream_.write("0123456789 and more\n", kInfo);
    }
    for (uint64_t more = 0; more < 300; more += 7) {
      const FileSizeLimit full(room + more);
      stream_.continueWriting();
    }
    stream_.write("the last line\n", kInfo);
    size_t whole = 0;
    for (const std::string& line : linesOf(contentOf(path()))) {
      whole += line == "0123456789 and more" ? 1 : 0;
      EXPECT_TRUE(line == "0123456789 and more" || line == "the last line" ||
                  reports(line, std::to_string(8 - whole) + (8 - whole == 1 ? " line" : " lines"),
                          "File too large"))
          << line << " after " << room << " bytes";
    }
  }
}

TEST_F(ErrorStreamTest, ALineThatAnEarlierWriterHasTornSwallowsNoLine) {
  fs::create_directory(folder_ + "/logs");
  std::ofstream(path()) << "whole\n{\"level\":\"war";
  useFile();
  stream_.write("next\n", kInfo);
  EXPECT_EQ(contentOf(path()), "whole\n{\"level\":\"war\nnext\n");
}

TEST_F(ErrorStreamTest, ATornLineIsWrittenAgainInAFileThatWasCutOrContinued) {
  useFile();
  const auto tear = [&](size_t written) {
    const FileSizeLimit full(written);
    stream_.write("a worker died\n", kWarning);
  };
  tear(5);
  ASSERT_EQ(::truncate(path().c_str(), 0), 0);
  stream_.write("next\n", kInfo);
  EXPECT_EQ(contentOf(path()), "a worker died\nnext\n");
  tear(24);
  std::ofstream(path(), std::ios::app) << "another program's line\n";
  stream_.write("next\n", kInfo);
  EXPECT_EQ(contentOf(path()),
            "a worker died\nnext\na woranother program's line\na worker died\nnext\n");
}

TEST_F(ErrorStreamTest, FollowsItsPathWhenTheFileIsRenamedOrRemoved) {
  useFile();
  stream_.write("1\n", kInfo);
  fs::rename(path(), path() + ".1");
  stream_.write("2\n", kInfo);
  EXPECT_EQ(contentOf(path() + ".1"), "1\n");
  EXPECT_EQ(contentOf(path()), "2\n");
  fs::remove(path());
  stream_.write("3\n", kInfo);
  EXPECT_EQ(contentOf(path()), "3\n");
  // As logrotate does with `create`.
  fs::rename(path(), path() + ".1");
  std::ofstream(path()) << "";
  stream_.write("4\n", kInfo);
  EXPECT_EQ(contentOf(path()), "4\n");
}

TEST_F(ErrorStreamTest, WithoutItsFolderLinesAreKeptOrCountedUntilThereIsOneAgain) {
  useFile();
  stream_.write("1\n", kInfo);
  fs::remove_all(folder_ + "/logs");
  stream_.write("a worker died\n", kWarning);
  stream_.write("2\n", kInfo);
  EXPECT_FALSE(stream_.continueWriting());
  EXPECT_EQ(lost(kInfo), 1u);
  fs::create_directory(folder_ + "/logs");
  EXPECT_TRUE(stream_.continueWriting());
  const std::vector<std::string> lines = linesOf(contentOf(path()));
  ASSERT_EQ(lines.size(), 2u) << contentOf(path());
  EXPECT_EQ(lines[0], "a worker died");
  EXPECT_TRUE(reports(lines[1], "1 line", path() + ": No such file or directory"));
}

TEST_F(ErrorStreamTest, AFileThatWasRenamedAndCanNotBeMadeAgainKeepsTheLog) {
  useFile();
  fs::rename(folder_ + "/logs", folder_ + "/moved");
  for (int i = 0; i < 2; ++i) stream_.write("still written\n", kInfo);
  EXPECT_EQ(contentOf(folder_ + "/moved/isopoold.log"),
            "! the log file can't be opened again, the log goes to the old one: " + path() +
                ": No such file or directory\nstill written\nstill written\n");
}

TEST_F(ErrorStreamTest, APathThatCanNotBeOpenedChangesNothing) {
  useFile();
  EXPECT_EQ(stream_.sendTo("/nowhere/isopoold.log"),
            "/nowhere/isopoold.log: No such file or directory");
  stream_.write("1\n", kInfo);
  EXPECT_EQ(contentOf(path()), "1\n");
}

TEST_F(ErrorStreamTest, AFullDeviceKeepsWarningsUpTo64KiB) {
  use(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  for (int i = 0; i < 1000; ++i) stream_.write(std::string(99, 'x') + "\n", kWarning);
  EXPECT_EQ(lost(kWarning), 1000u - (64u << 10) / 100u);
  use(::open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  EXPECT_TRUE(stream_.continueWriting());
  const std::vector<std::string> lines = linesOf(contentOf(folder_ + "/log"));
  ASSERT_EQ(lines.size(), (64u << 10) / 100u + 1);
  EXPECT_TRUE(
      reports(lines.back(), std::to_string(lost(kWarning)) + " lines", "No space left on device"));
}

TEST_F(ErrorStreamTest, APipeWithoutAReaderIsALossAndNoSignal) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  use(ends[1]);
  ::close(ends[0]);
  stream_.write("1\n", kInfo);  // SIGPIPE would end the process
  EXPECT_EQ(lost(kInfo), 1u);
  use(::open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  EXPECT_TRUE(stream_.continueWriting());
  EXPECT_TRUE(
      reports(linesOf(contentOf(folder_ + "/log")).at(0), "1 line", "the log has no reader"));
}

/// Streams whose reader does not read: descriptors to write and to read.
using Ends = std::pair<int, int>;
Ends pipeEnds() {
  int ends[2];
  return ::pipe2(ends, O_CLOEXEC) == 0 ? Ends{ends[1], ends[0]} : Ends{-1, -1};
}
Ends socketEnds() {
  int ends[2];
  return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? Ends{ends[0], ends[1]}
                                                                         : Ends{-1, -1};
}
Ends terminalEnds() {
  const int controller = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (controller < 0 || ::grantpt(controller) != 0 || ::unlockpt(controller) != 0) return {-1, -1};
  return {::open(::ptsname(controller), O_RDWR | O_NOCTTY | O_CLOEXEC), controller};
}

TEST_F(ErrorStreamTest, NoReaderIsWaitedForAndEachGetsWholeLines) {
  struct Stream {
    const char* name;
    Ends (*make)();
  };
  for (const auto& [name, make] :
       {Stream{"pipe", pipeEnds}, Stream{"socket", socketEnds}, Stream{"terminal", terminalEnds}}) {
    const auto [toWrite, toRead] = make();
    ASSERT_GE(toWrite, 0) << name;
    const Fd reader(toRead);
    ASSERT_EQ(::fcntl(reader.get(), F_SETFL, O_NONBLOCK), 0);
    use(toWrite);
    const uint64_t lostBefore = lost(kInfo);
    // Lengths that leave some room for a part of a line.
    for (int i = 0; i < 5000; ++i) stream_.write(std::string(300 + i % 7, 'x') + ".\n", kInfo);
    EXPECT_GT(lost(kInfo), lostBefore) << name;
    std::string text;
    const auto read = [&, end = reader.get()] {
      char bytes[65536];
      for (ssize_t got; (got = ::read(end, bytes, sizeof bytes)) > 0;) {
        text.append(bytes, static_cast<size_t>(got));
      }
    };
    read();
    EXPECT_TRUE(stream_.continueWriting()) << name;
    stream_.write("heard again\n", kInfo);
    read();
    std::erase(text, '\r');  // a terminal adds them
    const std::vector<std::string> lines = linesOf(text);
    EXPECT_EQ(lines.back(), "heard again") << name;
    // A report may find room where a line did not.
    uint64_t reported = 0;
    for (size_t i = 0; i + 1 < lines.size(); ++i) {
      const std::string& line = lines[i];
      if (line.starts_with("xxx") && line.ends_with("x.") && line.size() < 310) continue;
      const std::string count = line.substr(2, line.find(" of the log") - 2);
      EXPECT_TRUE(reports(line, count, "the log's reader does not read")) << name;
      reported += std::stoul(count);
    }
    EXPECT_EQ(reported, lost(kInfo) - lostBefore) << name;
  }
}

}  // namespace
}  // namespace isopool::base
