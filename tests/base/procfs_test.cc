// SPDX-License-Identifier: BSD-3-Clause
#include "base/procfs.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>

namespace isopool::base {
namespace {

pid_t forkChild(bool ends) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (ends) ::_exit(0);
  for (;;) ::pause();
}

TEST(ProcessTable, ListsTheChildrenOfEveryThreadAndThoseThatAreDeadAndNotReaped) {
  const pid_t living = forkChild(/*ends=*/false);
  const pid_t dead = forkChild(/*ends=*/true);
  std::promise<pid_t> forked;
  std::promise<void> done;
  std::thread thread([&] {
    forked.set_value(forkChild(/*ends=*/false));
    done.get_future().wait();
  });
  const pid_t ofThread = forked.get_future().get();
  const pid_t parent = ::getppid();
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(dead), &info, WEXITED | WNOWAIT), 0);
  const std::vector<pid_t> children = childrenOf(::getpid());
  for (const pid_t child : {living, dead, ofThread}) {
    EXPECT_EQ(std::count(children.begin(), children.end(), child), 1) << child;
  }
  EXPECT_EQ(std::count(children.begin(), children.end(), parent), 0);
  EXPECT_EQ(std::count(children.begin(), children.end(), ::getpid()), 0);
  done.set_value();
  thread.join();
  for (const pid_t child : {living, ofThread}) ::kill(child, SIGKILL);
  for (const pid_t child : {living, dead, ofThread}) ::waitpid(child, nullptr, 0);
}

TEST(ProcessTable, CountsTheThreadsOfAProcess) {
  // More than one if a sanitizer has a thread of its own.
  const auto before = statusOf(::getpid()).threads;
  EXPECT_GE(before, 1u);
  std::promise<void> end;
  std::thread waiting([&] { end.get_future().wait(); });
  EXPECT_EQ(statusOf(::getpid()).threads, before + 1);
  end.set_value();
  waiting.join();
}

TEST(ProcessTable, KeepsTheProcessorTimeOfADeadProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    timespec used{};
    while (used.tv_nsec < 50'000'000) ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    ::_exit(0);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  // The kernel counts in ticks of 10 ms.
  EXPECT_GE(statusOf(child).processorTime, std::chrono::milliseconds(20));
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(statusOf(child).processorTime, std::chrono::milliseconds(0));
}

TEST(Descriptors, AreCounted) {
  const uint64_t before = openDescriptors();
  EXPECT_GE(before, 3u);
  const int more[] = {::dup(0), ::dup(0)};
  EXPECT_EQ(openDescriptors(), before + 2);
  for (const int each : more) ::close(each);
  EXPECT_EQ(openDescriptors(), before);
}

TEST(ProcessTable, SaysHowAProcessIs) {
  const pid_t child = forkChild(/*ends=*/false);
  EXPECT_EQ(statusOf(child).parent, ::getpid());
  ::kill(child, SIGSTOP);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_EQ(statusOf(child).state, 'T');
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(statusOf(child).state, 'Z');
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(statusOf(child).state, 0);
}

}  // namespace
}  // namespace isopool::base
