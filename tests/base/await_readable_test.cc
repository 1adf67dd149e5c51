// SPDX-License-Identifier: BSD-3-Clause
#include "base/await_readable.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "base/fd.h"
#include "testing/signal_storm.h"

namespace isopool::base {
namespace {

using std::chrono::milliseconds;

TEST(AwaitReadable, WaitsAllItsTimeUnderSignals) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reading(ends[0]);
  const Fd writing(ends[1]);
  const tests::SignalStorm storm;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(awaitReadable(reading.get(), milliseconds(100)));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(100));
  ASSERT_EQ(::write(writing.get(), "x", 1), 1);
  EXPECT_TRUE(awaitReadable(reading.get(), milliseconds(0)));
}

// The state of a thread from /proc; S is a thread that sleeps.
char stateOf(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  return line.at(line.rfind(')') + 2);
}

TEST(AwaitReadable, SleepsForAsLongAsItTakesIfAsked) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reading(ends[0]);
  const Fd writing(ends[1]);
  std::atomic<pid_t> waiting{0};
  bool readable = false;
  std::thread thread([&] {
    waiting = static_cast<pid_t>(::syscall(SYS_gettid));
    readable = awaitReadable(reading.get(), kForever);
  });
  const auto giveUp = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int asleep = 0;
  while (asleep < 100 && std::chrono::steady_clock::now() < giveUp) {
    asleep = waiting != 0 && stateOf(waiting) == 'S' ? asleep + 1 : 0;
    std::this_thread::yield();
  }
  EXPECT_EQ(asleep, 100);
  EXPECT_EQ(::write(writing.get(), "x", 1), 1);
  thread.join();
  EXPECT_TRUE(readable);
}

TEST(AwaitReadable, InvalidDescriptorIsNotReadable) {
  EXPECT_FALSE(awaitReadable(-1, milliseconds(1)));
}

}  // namespace
}  // namespace isopool::base
