// SPDX-License-Identifier: BSD-3-Clause
// All processes are stopped for seconds and continued, as by `docker pause`, a debugger or Ctrl-Z,
// while calls run and wait. None of them is to blame for that time.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "testing/freezer.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

// Longer than every limit that a worker could exceed meanwhile: a second without taking a call, and
// the settings of the pool below.
constexpr int kStopped = 3000;  // ms

class Everything {
 public:
  virtual ~Everything() = default;
  /// Stops this process too, so another one continues it. Returns when everything runs again.
  virtual void stop(const std::vector<pid_t>& processes) = 0;
};

void runShell(const std::string& command) {
  std::vector<std::string> words{"/bin/sh", "-c", command};
  std::vector<char*> pointers{words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = -1;
  ASSERT_EQ(::posix_spawn(&child, "/bin/sh", nullptr, nullptr, pointers.data(), environ), 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << command;
}

class ByControlGroup : public Everything {
 public:
  explicit ByControlGroup(Freezer freezer) : freezer_(std::move(freezer)) {}
  void stop(const std::vector<pid_t>& processes) override {
    freezer_.add(processes);
    freezer_.add({::getpid()});
    runShell(freezer_.freezingFor(kStopped));
  }

 private:
  Freezer freezer_;
};

class BySignals : public Everything {
 public:
  void stop(const std::vector<pid_t>& processes) override {
    std::string numbers;
    for (const pid_t pid : processes) numbers += " " + std::to_string(pid);
    // This process first: it is the one that judges the worker, which is continued last.
    const std::string self = std::to_string(::getpid());
    runShell("kill -STOP" + numbers + " " + self + "; sleep " + std::to_string(kStopped / 1000) +
             "; kill -CONT " + self + "; sleep 0.03; kill -CONT" + numbers);
  }
};

class Frozen : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("signals")) {
      everything_ = std::make_unique<BySignals>();
      return;
    }
    std::string why;
    auto freezer = Freezer::make(why);
    if (!freezer) GTEST_SKIP() << "no freezer: " << why;
    everything_ = std::make_unique<ByControlGroup>(std::move(*freezer));
  }
  void stopEverything() { everything_->stop(pool_.tree().all()); }

  OwnPool pool_{1,
                {"ISOPOOL_CLEANUP_TIMEOUT=1s", "ISOPOOL_GRACE=2s", "ISOPOOL_WORKER_TIMEOUT=2s",
                 "ISOPOOL_FORK_TIMEOUT=2s"}};
  std::unique_ptr<Everything> everything_;
};

TEST_P(Frozen, ForSecondsLosesNoWorkerAndNoSession) {
  const pid_t worker = pool_.processOf(0);
  auto session = pool_.manager().acquireOne();
  const Obj counter = session.global("itertools", "count")(std::vector<at::IValue>{});
  EXPECT_EQ(session.global("builtins", "next")(std::vector<Obj>{counter}).toIValue().toInt(), 0);
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, i] {
      while (!over) {
        try {
          const CallOptions options{.deadline = milliseconds(200 + 100 * i)};
          if (pool_.subject().ask("work", {10}, options).toInt() != worker) ++wrong;
        } catch (const DeadlineExceeded&) {
          // Its deadline passed while it was stopped.
        } catch (const std::exception& error) {
          ++wrong;
          ADD_FAILURE() << error.what();
        }
      }
    });
  }
  for (int i = 0; i < 2; ++i) stopEverything();
  over = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool_.processOf(0), worker);
  EXPECT_EQ(pool_.manager().workersReplaced(), 0u);
  EXPECT_EQ(session.global("builtins", "next")(std::vector<Obj>{counter}).toIValue().toInt(), 1);
}

TEST_P(Frozen, DuringACallWithADeadlineEndsTheCallAndNotTheWorker) {
  const pid_t worker = pool_.processOf(0);
  const Gate gate;
  std::string outcome;
  auto call = std::async(std::launch::async, [&] {
    try {
      pool_.subject().ask("wait_at", gate.arguments(), {.deadline = milliseconds(2500)});
      outcome = "answered";
    } catch (const DeadlineExceeded& error) {
      outcome = error.what();
    }
  });
  EXPECT_EQ(gate.arrival(), worker);
  stopEverything();
  call.get();
  EXPECT_NE(outcome.find("did not run for a part of the time"), std::string::npos) << outcome;
  gate.open();
  EXPECT_EQ(pool_.subject().number("pid"), worker);
}

TEST_P(Frozen, DuringACallThatHangsPostponesTheKillOnly) {
  const pid_t worker = pool_.processOf(0);
  const Gate gate;
  auto call = std::async(std::launch::async, [&] {
    EXPECT_THROW(pool_.subject().ask("wait_at", gate.arguments(), {.deadline = milliseconds(1000)}),
                 DeadlineExceeded);
  });
  EXPECT_EQ(gate.arrival(), worker);
  stopEverything();
  call.get();
  EXPECT_TRUE(waitUntilDead(worker, kPatience));
  EXPECT_NE(pool_.subject().number("pid"), worker);
}

INSTANTIATE_TEST_SUITE_P(By, Frozen, ::testing::Values("control_group", "signals"),
                         [](const auto& each) { return std::string(each.param); });

// The worker is stopped while this process runs, but for a shorter time than counts.
TEST(FrozenWorker, ThatIsContinuedAMomentAfterThisProcessIsNotKilled) {
  OwnPool pool(1);
  const pid_t worker = pool.processOf(0);
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  auto call = std::async(std::launch::async, [&] {
    EXPECT_THROW(pool.subject().ask("pid", {}, {.deadline = milliseconds(300)}), DeadlineExceeded);
  });
  const std::string self = std::to_string(::getpid());
  runShell("sleep 0.1; kill -STOP " + self + "; sleep 2; kill -CONT " + self +
           "; sleep 0.05; kill -CONT " + std::to_string(worker));
  call.get();
  EXPECT_EQ(pool.subject().number("pid"), worker);
}

// Idle workers of another pool of the program do not serve its calls.
TEST(FrozenWorker, IsReplacedWhileAnotherPoolOfTheProgramIsIdle) {
  OwnPool idle(2);
  OwnPool pool(1);
  const pid_t worker = pool.processOf(0);
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  // Five seconds after the signal, in place of the end of its deadline.
  EXPECT_NE(pool.subject().ask("pid", {}, {.deadline = milliseconds(20'000)}).toInt(), worker);
}

}  // namespace
}  // namespace isopool::tests
