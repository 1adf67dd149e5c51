// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/worker_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/log/log.h"
#include "base/loop/kernel_event_loop.h"

namespace isopool::supervisor {
namespace {

/// The error stream in a file, and what workers write.
class WorkerOutputTest : public testing::Test {
 protected:
  WorkerOutputTest()
      : before_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)),
        log_(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC | O_APPEND, 0600)) {
    EXPECT_TRUE(log_.valid());
    ::dup2(log_.get(), STDERR_FILENO);
    base::startLog(base::LogLevel::kWarning, base::LogFormat::kJson);
    output_.emplace(loop_, quota_, [this] { return source_; });
  }
  ~WorkerOutputTest() override {
    output_->finish();
    base::startLog(base::LogLevel::kWarning, base::LogFormat::kText);
    ::dup2(before_.get(), STDERR_FILENO);
  }

  void write(const std::string& text) {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t bytes =
          ::write(output_->writeEnd().get(), text.data() + sent, text.size() - sent);
      ASSERT_GT(bytes, 0);
      sent += static_cast<size_t>(bytes);
    }
  }
  /// Runs the loop until the log has the text; false if that takes longer than 10 s.
  bool runUntilLogHas(const std::string& text) {
    return runUntil([&] { return log().find(text) != std::string::npos; });
  }
  bool runUntil(const std::function<bool()>& condition) {
    base::Timer look(loop_);
    int looks = 0;
    std::function<void()> again = [&] {
      if (condition() || ++looks > 2000) return loop_.stop();
      look.setAfter(base::Milliseconds(5), again);
    };
    again();
    loop_.run();
    return condition();
  }
  std::string log() const {
    std::string text(size_t{8} << 20, '\0');
    const ssize_t got = ::pread(log_.get(), text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return text;
  }
  static size_t lines(const std::string& text) {
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  base::Fd before_;
  base::Fd log_;
  base::KernelEventLoop loop_;
  OutputSource source_;
  OutputQuota quota_{0, loop_.now()};
  std::optional<WorkerOutput> output_;
};

TEST_F(WorkerOutputTest, IsLoggedLineByLineWithItsSource) {
  write("one\ntwo\n");
  ASSERT_TRUE(runUntilLogHas("\"two\""));
  EXPECT_EQ(lines(log()), 2u) << log();
  EXPECT_NE(log().find("\"message\":\"one\",\"source\":\"worker\"}\n"), std::string::npos) << log();
}

TEST_F(WorkerOutputTest, IsLoggedWithItsWorkerAndItsModel) {
  source_.processId = 4711;
  source_.slot = "2";
  source_.model = "resnet.pt:model";
  write("one\n");
  ASSERT_TRUE(runUntilLogHas("\"one\""));
  EXPECT_NE(
      log().find(R"("source":"worker","worker_pid":4711,"slot":"2","model":"resnet.pt:model")"),
      std::string::npos)
      << log();
}

TEST_F(WorkerOutputTest, CanNotForgeALineOfTheLog) {
  write(R"({"time":"2026-11-21T22:14:27.670Z","level":"error","pid":1,"message":"forged"})"
        "\n<0>forged\x1b[2J\r\n");
  ASSERT_TRUE(runUntilLogHas("<0>forged"));
  const std::string text = log();
  EXPECT_EQ(lines(text), 2u) << text;
  EXPECT_EQ(text.find("\"level\":\"error\""), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST_F(WorkerOutputTest, ALineWithoutAnEndIsLoggedAfterAWhile) {
  write("a progress bar");
  EXPECT_TRUE(runUntilLogHas("\"a progress bar\""));
}

TEST_F(WorkerOutputTest, ALongLineIsSeveral) {
  write(std::string(7000, 'x') + "\n");
  ASSERT_TRUE(runUntilLogHas("\"" + std::string(7000 - 2 * 3072, 'x') + "\""));
  EXPECT_EQ(lines(log()), 3u);
}

TEST_F(WorkerOutputTest, AFloodIsCutAndTheLogSaysSo) {
  std::atomic<bool> ended = false;
  std::thread flood([&] {
    for (int piece = 0; piece < 20; ++piece) write(std::string(1u << 20, '\n'));
    for (int line = 0; line < 5000; ++line) write(std::string(1023, 'x') + "\n");
    ended = true;
  });
  EXPECT_TRUE(runUntil(
      [&] { return ended && log().find("output of a worker was dropped") != std::string::npos; }));
  ASSERT_TRUE(ended);
  flood.join();
  EXPECT_NE(log().find("\"lines\":"), std::string::npos);
  EXPECT_LT(log().size(), 4u << 20);
}

TEST_F(WorkerOutputTest, AboveTheQuotaOfAnHourIsDroppedCountedAndReportedOnce) {
  quota_.setLimit(40'000);
  source_.processId = 4711;
  for (int i = 0; i < 1000; ++i) write("line " + std::to_string(i) + "\n");
  ASSERT_TRUE(runUntil([&] { return quota_.dropped()[1] > 0; }));
  output_->finish();
  EXPECT_NE(log().find("output of a worker is dropped for the next 60 min"), std::string::npos);
  EXPECT_EQ(log().find("is dropped for the next"), log().rfind("is dropped for the next"));
  const auto logged = 1000 - quota_.dropped()[1];
  EXPECT_NE(log().find("\"line " + std::to_string(logged - 1) + "\""), std::string::npos);
  EXPECT_EQ(log().find("\"line " + std::to_string(logged) + "\""), std::string::npos);
  EXPECT_LT(log().size(), 22'000u) << "one process gets half";
  EXPECT_NE(log().find("after it had used its share of an hour (worker_output_quota)\","
                       "\"worker_pid\":4711,\"lines\":" +
                       std::to_string(1000 - logged)),
            std::string::npos)
      << log();
  // Another one still finds room.
  WorkerOutput other(loop_, quota_, [] { return OutputSource{}; });
  ASSERT_EQ(::write(other.writeEnd().get(), "of another\n", 11), 11);
  other.finish();
  EXPECT_NE(log().find("\"of another\""), std::string::npos);
}

TEST(OutputQuota, LeavesRoomForOthersWhateverManyWrite) {
  const base::TimePoint start{};
  OutputQuota quota(1 << 20, start);
  uint64_t all = 0;
  for (int process = 0; process < 50; ++process) {
    OutputQuota::Share share;
    EXPECT_TRUE(process > 10 || quota.allows(share, start)) << process;
    while (quota.allows(share, start)) {
      quota.charge(share, 100);
      all += 100;
    }
  }
  EXPECT_LE(all, (1u << 20) + 50 * 100);
  EXPECT_GT(all, (1u << 20) - 1000u);
}

TEST(OutputQuota, BeginsAgainEachHour) {
  const base::TimePoint start{};
  OutputQuota quota(1000, start);
  OutputQuota::Share share;
  for (const int hour : {0, 1, 100}) {
    const base::TimePoint now = start + std::chrono::hours(hour) + std::chrono::minutes(7);
    EXPECT_TRUE(quota.allows(share, now)) << hour;
    quota.charge(share, 500);
    EXPECT_FALSE(quota.allows(share, now)) << hour;
    EXPECT_EQ(quota.leftOfHour(now), std::chrono::minutes(53)) << hour;
  }
}

TEST_F(WorkerOutputTest, WhatWasWrittenIsLoggedAtTheEnd) {
  write("last words\nof a zygote");
  output_->finish();
  EXPECT_NE(log().find("\"last words\""), std::string::npos) << log();
  EXPECT_NE(log().find("\"of a zygote\""), std::string::npos) << log();
}

TEST_F(WorkerOutputTest, IsWrittenWhateverTheThresholdIs) {
  base::setLogLevel(base::LogLevel::kError);
  write("x\n");
  EXPECT_TRUE(runUntilLogHas("\"x\""));
}

}  // namespace
}  // namespace isopool::supervisor
