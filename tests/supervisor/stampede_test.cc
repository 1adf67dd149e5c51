// SPDX-License-Identifier: BSD-3-Clause
// Many programs leave a shared supervisor at once: what each costs does not depend on how many
// there are, and the supervisor answers others meanwhile. Costs are the supervisor's processor
// time, which a loaded machine does not change much.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/parent_death.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/operator_messages.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

using std::chrono::nanoseconds;

constexpr milliseconds kPatience(60'000);

/// The processor time that a process has used.
class ProcessorTime {
 public:
  explicit ProcessorTime(pid_t pid) { EXPECT_EQ(::clock_getcpuclockid(pid, &clock_), 0); }
  nanoseconds now() const {
    timespec time{};
    ::clock_gettime(clock_, &time);
    return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
  }

 private:
  clockid_t clock_{};
};

/// Programs that are attached, each a process of its own.
class Crowd {
 public:
  Crowd(const SharedSupervisor& supervisor, size_t count) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    answers_ = base::Fd(ends[0]);
    const pid_t self = ::getpid();
    for (size_t i = 0; i < count; ++i) {
      const pid_t program = ::fork();
      EXPECT_GE(program, 0);
      if (program == 0) {
        base::endWithParent(self);
        const auto client = supervisor.attachWithPool(2, "one of many");
        const bool whole = client->workers().size() >= 2 && !testing::Test::HasFailure();
        [[maybe_unused]] ssize_t done = ::write(ends[1], whole ? "y" : "n", 1);
        const std::array former{client->serving(1, 0), client->serving(1, 1)};
        const bool served = client->waitFor(
            [&] {
              return client->serving(1, 0) != former[0] && client->serving(1, 1) != former[1];
            },
            2 * kPatience);
        // The spare worker served the slot if it was killed after the slot's own one.
        const auto answers = [&] {
          const uint64_t worker = client->serving(1, 0);
          return worker != 0 && client->call(worker, "x", milliseconds(1000)) == "x";
        };
        const bool answered = served && client->waitFor(answers, 2 * kPatience);
        done = ::write(ends[1], answered ? "y" : "n", 1);
        for (;;) ::pause();
      }
      programs_.push_back(program);
      // A few at a time: they share the machine's processors.
      if (programs_.size() % kAtATime == 0) await(kAtATime);
    }
    await(count % kAtATime);
    ::close(ends[1]);
  }
  ~Crowd() { leave(); }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  /// Waits until each of them has other workers than at first, and one has answered.
  void awaitOtherWorkers() const { await(programs_.size()); }
  void leave() {
    for (const pid_t program : programs_) ::kill(program, SIGKILL);
    for (const pid_t program : programs_) ::waitpid(program, nullptr, 0);
    programs_.clear();
  }

 private:
  static constexpr size_t kAtATime = 20;

  void await(size_t programs) const {
    for (size_t i = 0; i < programs; ++i) {
      pollfd readable{answers_.get(), POLLIN, 0};
      char answer = 0;
      ASSERT_EQ(::poll(&readable, 1, static_cast<int>(kPatience.count())), 1);
      ASSERT_EQ(::read(answers_.get(), &answer, 1), 1);
      ASSERT_EQ(answer, 'y');
    }
  }

  base::Fd answers_;
  std::vector<pid_t> programs_;
};

struct Cost {
  nanoseconds ofEach{0};    ///< all that the supervisor did, by the number of programs
  nanoseconds ofAnswer{0};  ///< the most that it did between a question and its answer
  milliseconds longest{0};  ///< the longest wait for an answer
  milliseconds all{0};
};

Cost costOfLeaving(size_t count) {
  SharedSupervisor supervisor(
      {"--workers", "2", "--max-clients", "2000", "--output-arena", "64KiB"});
  const auto keeper = supervisor.attachWithPool(2, "keeper");
  const ProcessorTime time(supervisor.supervisorPid());
  Crowd crowd(supervisor, count);
  EXPECT_EQ(supervisor.report().clients.size(), count + 1);
  Cost cost;
  const nanoseconds before = time.now();
  const auto began = Clock::now();
  // The supervisor finds all of this when it goes on.
  const pid_t process = supervisor.supervisorPid();
  EXPECT_EQ(::kill(process, SIGSTOP), 0);
  crowd.leave();
  EXPECT_EQ(::kill(process, SIGCONT), 0);
  // Answers cost the supervisor time, too: on a busy machine, where all takes longer, there must
  // not be more of them.
  constexpr int kBetweenAnswers = 5;  // ms
  constexpr milliseconds kBetweenReports(50);
  auto nextReport = began;
  bool left = false;
  while (!left && Clock::now() - began < kPatience) {
    ::poll(nullptr, 0, kBetweenAnswers);
    const nanoseconds asked = time.now();
    const auto then = Clock::now();
    keeper->statistics();
    cost.ofAnswer = std::max(cost.ofAnswer, time.now() - asked);
    cost.longest =
        std::max(cost.longest, std::chrono::duration_cast<milliseconds>(Clock::now() - then));
    if (Clock::now() < nextReport) continue;
    nextReport = Clock::now() + kBetweenReports;
    const ipc::Report report = supervisor.report();
    left = report.clients.size() == 1 &&
           std::all_of(report.workers.begin(), report.workers.end(),
                       [](const ipc::ReportedWorker& worker) { return worker.clients <= 1; });
  }
  EXPECT_TRUE(left) << "not all have left";
  cost.all = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
  cost.ofEach = (time.now() - before) / static_cast<int64_t>(count);
  std::printf(
      "%zu programs left within %lld ms: %.0f us of the supervisor for each; at most %.1f ms "
      "until it answers, %lld ms with others on the machine\n",
      count, static_cast<long long>(cost.all.count()),
      static_cast<double>(cost.ofEach.count()) / 1e3,
      static_cast<double>(cost.ofAnswer.count()) / 1e6,
      static_cast<long long>(cost.longest.count()));
  return cost;
}

TEST(Stampede, OfThousandProgramsThatLeaveCostsForEachWhatItCostsOfAHundred) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 20'000) GTEST_SKIP() << "1,000 programs need 20,000 open files";
  const Cost few = costOfLeaving(100);
  const Cost many = costOfLeaving(1000);
  EXPECT_LT(many.ofEach, few.ofEach * 3);
  EXPECT_LT(many.ofAnswer, milliseconds(100));
}

// Programs that end need the processors for longer than the supervisor: 300 real ones left it
// without an answer for 3 s, of which it used 0.13 s.
TEST(Stampede, LeavesTheSupervisorPrecedenceAndGivesItsWorkersNone) {
  if (::geteuid() != 0) GTEST_SKIP() << "a lower niceness needs root, or LimitNICE= of the unit";
  const int usual = ::getpriority(PRIO_PROCESS, 0);
  SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  const ipc::Report report = supervisor.report();
  const auto nicenessOf = [](int32_t pid) {
    return ::getpriority(PRIO_PROCESS, static_cast<id_t>(pid));
  };
  EXPECT_LT(nicenessOf(report.processId), usual);
  EXPECT_EQ(nicenessOf(report.zygoteProcessId), usual);
  const uint64_t worker = client->serving(1, 0);
  EXPECT_EQ(nicenessOf(client->worker(worker).introduction.processId), usual);
}

/// Of the supervisor, for each channel of the new workers.
nanoseconds costOfNewWorkers(size_t programs) {
  SharedSupervisor supervisor({"--workers", "2", "--max-clients", "2000"});
  const pid_t process = supervisor.supervisorPid();
  const ProcessorTime time(process);
  const Crowd crowd(supervisor, programs);
  const auto areReady = [&](const ipc::Report& now) {
    return std::count_if(now.workers.begin(), now.workers.end(),
                         [&](const auto& worker) { return worker.clients == programs; }) == 3;
  };
  EXPECT_TRUE(supervisor.waitForReport(areReady, kPatience));
  const ipc::Report report = supervisor.report();
  const nanoseconds before = time.now();
  const auto began = Clock::now();
  ::kill(report.zygoteProcessId, SIGKILL);
  for (const ipc::ReportedWorker& worker : report.workers) ::kill(worker.processId, SIGKILL);
  crowd.awaitOtherWorkers();
  const auto all = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
  EXPECT_TRUE(supervisor.waitForReport(areReady, kPatience));
  const auto cost = (time.now() - before) / static_cast<int64_t>(programs * 3);
  std::printf(
      "%zu programs had other workers within %lld ms: %.0f us of the supervisor for each "
      "channel\n",
      programs, static_cast<long long>(all.count()), static_cast<double>(cost.count()) / 1e3);
  return cost;
}

// With few programs a channel has 4 MiB for results from its beginning, which takes 2.4 ms.
TEST(Stampede, OfProgramsWhoseWorkersAndZygoteAreGoneAtOnceDoesNotWaitForMemoryForResults) {
  const nanoseconds few = costOfNewWorkers(5);
  const nanoseconds many = costOfNewWorkers(150);
  EXPECT_LT(many * 2, few);
}

}  // namespace
}  // namespace isopool::tests
