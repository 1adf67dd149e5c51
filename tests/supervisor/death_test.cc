// SPDX-License-Identifier: BSD-3-Clause
// Every kind of death, with real processes.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "ipc/control/client_messages.h"
#include "tests/supervisor/private_pool.h"

namespace isopool::tests {
namespace {

double millisecondsBetween(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

TEST(WorkerDeath, TheSpareTakesOverBeforeTheBodyIsReaped) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 1);
  ASSERT_NE(pool.waitForSpare(), 0u);
  std::vector<double> takeovers;
  for (int round = 0; round < 20; ++round) {
    const uint64_t spare = pool.waitForSpare();
    const uint64_t victim = pool.serving(1, 0);
    ASSERT_EQ(pool.call(victim, "a call, so that this death is not an early one"),
              "a call, so that this death is not an early one");
    const auto killed = pool.killAndReport(victim);
    ASSERT_TRUE(pool.waitFor([&] { return pool.serving(1, 0) == spare; }));
    takeovers.push_back(millisecondsBetween(killed, pool.assignedAt(1, 0)));
    EXPECT_EQ(pool.call(spare, "mine"), "mine");
    ASSERT_TRUE(pool.waitFor([&] { return pool.worker(victim).died.has_value(); }));
    EXPECT_EQ(pool.worker(victim).died->signal, SIGKILL);
  }
  std::sort(takeovers.begin(), takeovers.end());
  RecordProperty("median_takeover_microseconds", static_cast<int>(takeovers[10] * 1000));
  RecordProperty("worst_takeover_microseconds", static_cast<int>(takeovers.back() * 1000));
  EXPECT_LT(takeovers.back(), 100);
  EXPECT_TRUE(pool.quarantines().empty());
  EXPECT_EQ(pool.statistics().restarts, 20u);
}

TEST(WorkerDeath, IsSeenWithoutAnyReport) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 1);
  const uint64_t victim = pool.serving(1, 0);
  ::kill(pool.worker(victim).introduction.processId, SIGUSR1);
  ASSERT_TRUE(pool.waitFor([&] { return pool.worker(victim).died.has_value(); }));
  EXPECT_EQ(pool.worker(victim).died->signal, SIGUSR1);
  EXPECT_TRUE(pool.waitForPool(1, 1));
}

TEST(WorkerDeath, TheExitCodeArrives) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 1);
  const uint64_t victim = pool.serving(1, 0);
  pool.post(victim, "!exit 42");
  ASSERT_TRUE(pool.waitFor([&] { return pool.worker(victim).died.has_value(); }));
  EXPECT_EQ(pool.worker(victim).died->signal, 0);
  EXPECT_EQ(pool.worker(victim).died->exitCode, 42);
}

TEST(WorkerDeath, WithoutSparesAReplacementIsForked) {
  PrivatePool pool({"--spares", "0"});
  pool.begin();
  pool.openPool(1, 1);
  const uint64_t victim = pool.serving(1, 0);
  pool.killAndReport(victim);
  ASSERT_TRUE(pool.waitFor([&] { return pool.serving(1, 0) != victim; }));
  EXPECT_EQ(pool.call(pool.serving(1, 0), "new"), "new");
}

TEST(WorkerDeath, AStoppedWorkerThatIsReportedDies) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 1);
  const uint64_t victim = pool.serving(1, 0);
  ::kill(pool.worker(victim).introduction.processId, SIGSTOP);
  pool.send(ipc::ReportDeath{victim, "a deadline is over"});
  EXPECT_TRUE(pool.waitFor([&] { return pool.worker(victim).died.has_value(); }));
}

TEST(WorkerDeath, ADyingSpareIsReplaced) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 1);
  const uint64_t spare = pool.waitForSpare();
  ::kill(pool.worker(spare).introduction.processId, SIGKILL);
  ASSERT_TRUE(pool.waitFor([&] { return pool.worker(spare).died.has_value(); }));
  EXPECT_NE(pool.waitForSpare(), spare);
}

TEST(WorkerDeath, IsNotFollowedByASpareThatASignalHasStopped) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 1);
  const uint64_t spare = pool.waitForSpare();
  const pid_t process = pool.worker(spare).introduction.processId;
  ASSERT_EQ(::kill(process, SIGSTOP), 0);
  ASSERT_TRUE(pool.waitFor([&] {
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::string number, name, state;
    return static_cast<bool>(stat >> number >> name >> state) && state == "T";
  }));
  const uint64_t victim = pool.serving(1, 0);
  pool.killAndReport(victim);
  ASSERT_TRUE(pool.waitFor([&] {
    const uint64_t next = pool.serving(1, 0);
    return next != victim && next != spare && next != 0;
  }));
  EXPECT_EQ(pool.call(pool.serving(1, 0), "served"), "served");
}

TEST(WorkerDeath, KillsTheProcessesThatUserCodeHasStarted) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 2);
  const uint64_t victim = pool.serving(1, 0);
  const pid_t child = std::stoi(*pool.call(victim, "!child"));
  const pid_t daemon = std::stoi(*pool.call(victim, "!daemon"));
  const pid_t bystander = std::stoi(*pool.call(pool.serving(1, 1), "!child"));
  pool.openPool(2, 1);
  EXPECT_EQ(::kill(daemon, 0), 0) << "no worker has died yet";
  pool.killAndReport(victim);
  EXPECT_TRUE(waitUntilDead(child, milliseconds(1000)));
  EXPECT_TRUE(waitUntilDead(daemon, milliseconds(1000)));
  EXPECT_TRUE(pool.waitFor([&] { return pool.worker(victim).died.has_value(); }));
  EXPECT_EQ(::kill(bystander, 0), 0);
  EXPECT_TRUE(pool.waitFor([&] { return ::kill(child, 0) != 0 && ::kill(daemon, 0) != 0; }))
      << "not reaped";
}

TEST(WorkerDeath, CrashLoopIsQuarantinedAndReported) {
  PrivatePool pool({"--restart-limit", "3", "--quarantine", "200ms", "--spares", "0"});
  pool.begin();
  pool.setMode("worker-exits");
  pool.send(ipc::OpenPool{1, 1});
  ASSERT_TRUE(pool.waitFor([&] { return pool.quarantines().size() == 1; }));
  EXPECT_EQ(pool.quarantines()[0].deaths, 3u);
  EXPECT_EQ(pool.quarantines()[0].retryAfterMilliseconds, 200u);
  EXPECT_NE(pool.quarantines()[0].text.find("ISOPOOL_QUARANTINE"), std::string::npos);
  EXPECT_TRUE(pool.waitFor([&] { return pool.quarantines().size() == 2; }));
  pool.setMode("");
  EXPECT_TRUE(pool.waitForPool(1, 1)) << "the slot recovers when its workers do";
}

TEST(WorkerDeath, WhileAttachingCountsAsEarlyExit) {
  PrivatePool pool({"--restart-limit", "3", "--spares", "0"});
  pool.begin();
  pool.setMode("worker-dies-attached");
  pool.send(ipc::OpenPool{1, 1});
  EXPECT_TRUE(pool.waitFor([&] { return pool.quarantines().size() == 1; }));
}

TEST(WorkerDeath, OneThatNeverGetsReadyIsReplaced) {
  PrivatePool pool({"--worker-timeout", "100ms", "--spares", "0"});
  pool.begin();
  pool.setMode("worker-silent");
  pool.send(ipc::OpenPool{1, 1});
  ASSERT_TRUE(pool.waitFor([&] { return pool.statistics().restarts >= 1; }));
  pool.setMode("");
  EXPECT_TRUE(pool.waitForPool(1, 1));
}

TEST(WorkerDeath, AHundredLeaveNothingBehind) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 2);
  ASSERT_NE(pool.waitForSpare(), 0u);
  const pid_t supervisor = pool.welcome().processId;
  const size_t processes = pool.mark().processes().size();
  const auto atRest = [&] {
    return pool.statistics().workers.size() == 3 && pool.waitForSpare() != 0;
  };
  ASSERT_TRUE(atRest());
  // The supervisor keeps one set of channel memory in stock, and may be creating it just now.
  size_t before = 0;
  pool.waitFor([&] {
    pool.statistics();
    return std::exchange(before, openDescriptors(supervisor)) == before;
  });
  for (int round = 0; round < 100; ++round) {
    const uint64_t victim = pool.serving(1, static_cast<uint32_t>(round % 2));
    ASSERT_TRUE(pool.call(victim, "x"));
    pool.killAndReport(victim);
    ASSERT_TRUE(pool.waitFor([&] {
      return pool.serving(1, static_cast<uint32_t>(round % 2)) != victim &&
             pool.worker(victim).died.has_value();
    }));
  }
  ASSERT_TRUE(atRest());
  EXPECT_TRUE(pool.waitFor([&] {
    pool.statistics();
    return openDescriptors(supervisor) <= before;
  })) << openDescriptors(supervisor)
      << " descriptors, before " << before;
  EXPECT_EQ(pool.mark().processes().size(), processes);
}

TEST(SupervisorDeath, EverythingDiesWithIt) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 3);
  ASSERT_TRUE(pool.call(pool.serving(1, 0), "!daemon"));
  ASSERT_TRUE(pool.call(pool.serving(1, 0), "!child"));
  ::kill(pool.worker(pool.serving(1, 1)).introduction.processId, SIGSTOP);
  ::kill(pool.welcome().zygoteProcessId, SIGSTOP);
  ::kill(pool.welcome().processId, SIGKILL);
  EXPECT_TRUE(pool.mark().waitUntilNoneIsLeft(milliseconds(1000)));
  EXPECT_TRUE(pool.waitForEnd());
}

TEST(SupervisorDeath, ATermSignalEndsItInOrder) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 1);
  ::kill(pool.welcome().processId, SIGTERM);
  EXPECT_TRUE(pool.waitForEnd());
  EXPECT_TRUE(pool.failure());
  EXPECT_TRUE(pool.mark().waitUntilNoneIsLeft(milliseconds(1000)));
}

TEST(ClientLeaves, EverythingEnds) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 2);
  ASSERT_TRUE(pool.call(pool.serving(1, 0), "!daemon"));
  pool.closeControl();
  EXPECT_TRUE(pool.mark().waitUntilNoneIsLeft(milliseconds(1000)));
}

TEST(ClientLeaves, TheLifelineAloneIsEnoughEvenForAStoppedSupervisor) {
  PrivatePool pool;
  pool.begin();
  pool.openPool(1, 2);
  ASSERT_TRUE(pool.call(pool.serving(1, 0), "!daemon"));
  ::kill(pool.welcome().processId, SIGSTOP);
  pool.cutLifeline();
  EXPECT_TRUE(pool.mark().waitUntilNoneIsLeft(milliseconds(1000)));
}

/// A program with a pool, in a process of its own. The constructor returns when the pool is ready.
class Program {
 public:
  Program() {
    int told[2];
    if (::pipe(told) != 0) ADD_FAILURE();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(told[0]);
      PrivatePool pool;
      pool.begin();
      pool.openPool(1, 2);
      const std::string mark = pool.mark().variable();
      const pid_t supervisor = pool.welcome().processId;
      [[maybe_unused]] ssize_t written = ::write(told[1], &supervisor, sizeof supervisor);
      written = ::write(told[1], mark.data(), mark.size());
      ::close(told[1]);
      for (;;) ::pause();
    }
    ::close(told[1]);
    char mark[256];
    if (::read(told[0], &supervisor_, sizeof supervisor_) != sizeof supervisor_) ADD_FAILURE();
    const ssize_t length = ::read(told[0], mark, sizeof mark);
    mark_ = ProcessMark(std::string(mark, static_cast<size_t>(std::max<ssize_t>(length, 0))));
    ::close(told[0]);
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    std::filesystem::remove(PrivatePool::modeFileOf(mark_));
  }
  pid_t supervisor() const { return supervisor_; }
  const ProcessMark& mark() const { return mark_; }

 private:
  pid_t pid_ = -1;
  pid_t supervisor_ = -1;
  ProcessMark mark_{""};
};

TEST(ClientLeaves, KilledNothingOfItsPoolIsLeft) {
  Program program;
  ASSERT_FALSE(program.mark().processes().empty());
  program.kill();
  EXPECT_TRUE(program.mark().waitUntilNoneIsLeft(milliseconds(1000)));
}

TEST(ClientLeaves, KilledWhileTheSupervisorIsStoppedNothingOfItsPoolIsLeft) {
  Program program;
  ::kill(program.supervisor(), SIGSTOP);
  program.kill();
  EXPECT_TRUE(program.mark().waitUntilNoneIsLeft(milliseconds(1000)));
}

}  // namespace
}  // namespace isopool::tests
