// SPDX-License-Identifier: BSD-3-Clause
// What programs see when an operator pauses one of them, or restarts the supervisor that they
// share.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/attached_managers.h"

namespace isopool::tests {
namespace {

using ipc::Action;

constexpr milliseconds kLong(60'000);
constexpr milliseconds kShort(100);

std::string outcomeOf(const std::function<void()>& use) {
  try {
    use();
    return "answered";
  } catch (const DeadlineExceeded& error) {
    return error.started() ? "overdue" : "not started in time";
  } catch (const Cancelled&) {
    return "cancelled";
  } catch (const std::exception& error) {
    return error.what();
  }
}

class Operated : public AttachedManagers {
 protected:
  /// A manager that notes whether it is paused.
  std::unique_ptr<InterpreterManager> attachNoting() {
    PoolOptions options;
    options.workers = 1;
    options.sharedSupervisor = supervisor().address();
    options.reconnect = kLong;
    options.logger = [this](LogLevel, std::string_view text) {
      if (text.find("has paused this program") != std::string_view::npos) paused_ = true;
      if (text.find("pause is over") != std::string_view::npos) paused_ = false;
    };
    return std::make_unique<InterpreterManager>(options);
  }
  void act(Action action, milliseconds time = milliseconds(0)) {
    const bool pauses = action == Action::kPauseClient;
    // The manager that attached first.
    const uint64_t number = supervisor().report().clients.at(0).number;
    // A pause by a supervisor that was killed may have been noted.
    paused_ = !pauses;
    const ipc::ActionDone done = supervisor().act(action, number, "", time);
    ASSERT_TRUE(done.done) << done.text;
    ASSERT_TRUE(waitUntil([&] { return paused_ == pauses; }));
  }
  std::string state() const { return supervisor().report().clients.at(0).state; }

  std::atomic<bool> paused_{false};
};

TEST_F(Operated, CallsOfAPausedProgramWaitAndThoseOfOthersGoOn) {
  serve({});
  const auto manager = attachNoting();
  const Subject subject(*manager);
  const auto others = attach(1);
  const Subject other(*others);
  InterpreterSession session = subject.object().acquireSession();
  act(Action::kPauseClient);
  EXPECT_EQ(state(), "paused");
  auto call = std::async(std::launch::async, [&] { return subject.number("pid"); });
  auto step =
      std::async(std::launch::async, [&] { return session.global("math", "pi").toIValue(); });
  const PendingCall pending = subject.object().callAsync({"pid"});
  EXPECT_EQ(call.wait_for(kShort), std::future_status::timeout);
  EXPECT_EQ(step.wait_for(milliseconds(0)), std::future_status::timeout);
  for (int i = 0; i < 10; ++i) EXPECT_GT(other.number("pid"), 0);
  EXPECT_TRUE(supervisor().waitForReport(
      [](const ipc::Report& report) { return report.clients.at(0).queuedCalls == 3; }));
  act(Action::kResumeClient);
  EXPECT_GT(call.get(), 0);
  EXPECT_GT(step.get().toDouble(), 3.1);
  EXPECT_GT(pending.get().toInt(), 0);
  EXPECT_EQ(state(), "attached");
}

TEST_F(Operated, ACallThatRunsInAPauseIsAnswered) {
  serve({});
  const auto manager = attachNoting();
  const Subject subject(*manager);
  const Gate gate;
  auto running = std::async(std::launch::async, [&] {
    return outcomeOf([&] { subject.ask("wait_at", gate.arguments()); });
  });
  gate.arrival();
  act(Action::kPauseClient);
  gate.open();
  EXPECT_EQ(running.get(), "answered");
}

TEST_F(Operated, AnIdleWorkerOfAPausedProgramIsNotTakenForStopped) {
  serve({"--workers", "1"});
  const auto manager = attachNoting();
  const Subject subject(*manager);
  const int64_t worker = subject.number("pid");
  act(Action::kPauseClient);
  CallOptions options;
  options.deadline = kShort;
  // Deadlines of a second and more pass before a worker that does not respond is reported.
  for (int i = 0; i < 15; ++i) {
    EXPECT_EQ(outcomeOf([&] { subject.ask("pid", {}, options); }), "not started in time");
  }
  act(Action::kResumeClient);
  EXPECT_EQ(subject.number("pid"), worker);
  EXPECT_EQ(supervisor().report().restarts, 0u);
}

TEST_F(Operated, ACallThatWaitsInAPauseCanBeCancelled) {
  serve({});
  const auto manager = attachNoting();
  const Subject subject(*manager);
  subject.number("pid");
  act(Action::kPauseClient);
  const PendingCall call = subject.object().callAsync({"pid"});
  EXPECT_FALSE(call.wait_for(kShort));
  EXPECT_TRUE(call.cancel());
  EXPECT_EQ(outcomeOf([&] { call.get(); }), "cancelled");
}

TEST_F(Operated, APauseWithATimeEndsByItself) {
  serve({});
  const auto manager = attachNoting();
  const Subject subject(*manager);
  const auto began = Clock::now();
  act(Action::kPauseClient, milliseconds(300));
  EXPECT_GT(subject.number("pid"), 0);
  EXPECT_GE(Clock::now() - began, milliseconds(300));
}

TEST_F(Operated, ACallThatWaitsInAPauseDoesNotKeepAWorkerThatIsReplaced) {
  serve({"--workers", "1"}, "[recycle]\npatience = \"60s\"\n");
  const auto manager = attachNoting();
  const Subject subject(*manager);
  const auto before = static_cast<pid_t>(subject.number("pid"));
  act(Action::kPauseClient);
  auto call = std::async(std::launch::async, [&] { return subject.number("pid"); });
  EXPECT_EQ(call.wait_for(kShort), std::future_status::timeout);
  ASSERT_TRUE(supervisor().act(Action::kRecycleAll).done);
  EXPECT_TRUE(waitUntil([&] { return ::kill(before, 0) != 0; }, milliseconds(20'000)));
  act(Action::kResumeClient);
  EXPECT_NE(call.get(), before);
}

TEST_F(Operated, APausedProgramThatIsLostOrDrainedGoesOnAtTheNextSupervisor) {
  serve({});
  const auto manager = attachNoting();
  const Subject subject(*manager);
  const int64_t before = subject.number("pid");
  act(Action::kPauseClient);
  auto call = std::async(std::launch::async, [&] { return subject.number("pid"); });
  EXPECT_EQ(call.wait_for(kShort), std::future_status::timeout);
  ASSERT_EQ(::kill(supervisor().supervisorPid(), SIGKILL), 0);
  ASSERT_TRUE(supervisor().waitForEnd());
  supervisor().start();
  const int64_t next = call.get();
  EXPECT_NE(next, before);
  act(Action::kPauseClient);
  call = std::async(std::launch::async, [&] { return subject.number("pid"); });
  EXPECT_EQ(call.wait_for(kShort), std::future_status::timeout);
  // The drain ends the pause, so that the call that was accepted before can end here.
  ASSERT_TRUE(supervisor().act(Action::kRestart).done);
  EXPECT_EQ(call.get(), next);
  EXPECT_TRUE(waitUntil([&] { return manager->statistics().reconnects == 2; }, kLong));
  EXPECT_NE(subject.number("pid"), next);
}

TEST_F(Operated, ARestartRefusesNoCallAndEndsNone) {
  serve({});
  const auto busy = attach(1, kLong);
  const Subject long_(*busy);
  const auto manager = attach(1, kLong);
  const Subject subject(*manager);
  const Gate gate;
  auto running = std::async(std::launch::async, [&] {
    return outcomeOf([&] { long_.ask("wait_at", gate.arguments()); });
  });
  gate.arrival();
  const int64_t before = subject.number("pid");
  std::atomic<bool> stopped{false};
  std::atomic<int> answered{0};
  std::vector<std::string> failures;
  std::jthread caller([&] {
    while (!stopped) {
      const std::string outcome = outcomeOf([&] { subject.ask("pid"); });
      outcome == "answered" ? void(++answered) : failures.push_back(outcome);
    }
  });
  ASSERT_TRUE(supervisor().act(Action::kRestart).done);
  // The program without a long call has the next supervisor while the other's call still runs.
  EXPECT_TRUE(waitUntil([&] { return manager->statistics().reconnects == 1; }, kLong));
  const int now = answered;
  EXPECT_TRUE(waitUntil([&] { return answered > now + 10; }));
  EXPECT_EQ(running.wait_for(milliseconds(0)), std::future_status::timeout);
  stopped = true;
  caller.join();
  EXPECT_NE(subject.number("pid"), before);
  gate.open();
  EXPECT_EQ(running.get(), "answered");
  EXPECT_GT(long_.number("pid"), 0);
  EXPECT_EQ(failures, std::vector<std::string>());
}

// The thread that reads a connection reports its end to the program's logger before it ends the
// links to the workers: this logger keeps it there until the test has made its uses.
// The callback's call waits for the next supervisor.
TEST_F(Operated, ACallbackThatMakesACallKeepsNoProgramAtTheFormerSupervisor) {
  serve({});
  const auto manager = attachNoting();
  const Subject subject(*manager);
  std::promise<void> begun;
  std::promise<void> restarted;
  std::promise<int64_t> inner;
  const PendingCall outer = subject.object().callAsync({"pid"}, [&](const Outcome&) {
    begun.set_value();
    restarted.get_future().wait();
    inner.set_value(subject.number("pid"));
  });
  begun.get_future().wait();
  ASSERT_TRUE(supervisor().act(Action::kRestart).done);
  EXPECT_TRUE(waitUntil([&] { return manager->statistics().reconnects == 1; }, kLong / 6))
      << "the callback keeps the program at the former supervisor";
  restarted.set_value();
  const int64_t pid = inner.get_future().get();
  EXPECT_NE(pid, outer.get().toInt());
}

TEST_F(Operated, AfterARestartNoUseReachesAWorkerOfTheFormerSupervisor) {
  serve({});
  std::promise<void> usesMade;
  std::atomic<bool> held{false};
  PoolOptions options;
  options.workers = 2;
  options.sharedSupervisor = supervisor().address();
  options.reconnect = kLong;
  options.logger = [&, open = usesMade.get_future().share()](LogLevel, std::string_view text) {
    if (text.find("another supervisor has taken over") == std::string_view::npos) return;
    held = true;
    open.wait_for(kLong);
  };
  InterpreterManager manager(options);
  const Subject subject(manager);
  Package package = manager.loadPackage(packagePath());
  ASSERT_TRUE(supervisor().act(Action::kRestart).done);
  EXPECT_TRUE(waitUntil([&] { return held && manager.statistics().reconnects == 1; }, kLong));
  const auto outcome = [](auto&& use) { return outcomeOf([&] { use(); }); };
  EXPECT_EQ(outcome([&] { subject.ask("pid"); }), "answered");
  EXPECT_EQ(outcome([&] { subject.object().callAsync({"pid"}).get(); }), "answered");
  EXPECT_EQ(outcome([&] { manager.callOnAll("os", "getpid"); }), "answered");
  EXPECT_EQ(outcome([&] { subject.object().acquireSession().global("math", "pi"); }), "answered");
  EXPECT_EQ(outcome([&] { package.loadPickle("model", "model.pkl")({"pid"}); }), "answered");
  EXPECT_EQ(outcome([&] { subject.object().stream({"count_to", 3}).next(); }), "answered");
  EXPECT_LE(manager.statistics().callsRerun, 2u);
  usesMade.set_value();
}

TEST_F(Operated, ACallThatASupervisorsDeathEndedIsLostAlsoIfThePoolHasTheNextOne) {
  serve({});
  std::promise<void> attached;
  std::promise<void> ended;
  PoolOptions options;
  options.workers = 2;
  options.sharedSupervisor = supervisor().address();
  options.reconnect = kLong;
  // Keeps the thread that reads the connection.
  options.logger = [open = ended.get_future().share()](LogLevel, std::string_view text) {
    if (text.find("the supervisor is gone") != std::string_view::npos) open.wait_for(kLong);
  };
  const auto open = attached.get_future().share();
  InterpreterManager manager(options);
  const Subject subject(manager);
  const Gate gate;
  // Keeps the thread that would see its worker's death.
  std::atomic<bool> wanted{false};
  std::atomic<bool> kept{false};
  CallOptions watched;
  watched.interrupted = [&] {
    if (wanted && !kept.exchange(true)) open.wait_for(kLong);
    return false;
  };
  auto running = std::async(std::launch::async, [&] {
    try {
      subject.ask("wait_at", gate.arguments(), watched);
    } catch (const SupervisorLost& error) {
      return std::string(error.started() ? "lost" : "not started");
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("answered");
  });
  gate.arrival();
  wanted = true;
  ASSERT_TRUE(waitUntil([&] { return kept.load(); }));
  ASSERT_EQ(::kill(supervisor().supervisorPid(), SIGKILL), 0);
  ASSERT_TRUE(supervisor().waitForEnd());
  supervisor().start();
  EXPECT_GT(subject.number("pid"), 0);
  attached.set_value();
  EXPECT_EQ(running.get(), "lost");
  ended.set_value();
}

TEST_F(Operated, ACallThatWaitsForTheNextSupervisorCanBeInterrupted) {
  serve({});
  const auto manager = attach(1, kLong);
  const Subject subject(*manager);
  ASSERT_EQ(::kill(supervisor().supervisorPid(), SIGKILL), 0);
  ASSERT_TRUE(supervisor().waitForEnd());
  ASSERT_TRUE(waitUntil([&] { return !manager->statistics().connected; }));
  CallOptions options;
  options.interrupted = [] { return true; };
  EXPECT_EQ(outcomeOf([&] { subject.ask("pid", {}, options); }), "cancelled");
}

TEST_F(Operated, ManyRestartsUnderLoadEndNoCallAndRepeatFew) {
  constexpr int kRestarts = 12;
  constexpr int kThreads = 4;
  serve({});
  std::vector<std::unique_ptr<InterpreterManager>> managers;
  std::vector<Subject> subjects;
  for (int i = 0; i < 2; ++i) {
    managers.push_back(attach(2, kLong));
    subjects.emplace_back(*managers.back());
  }
  std::atomic<bool> stopped{false};
  std::atomic<uint64_t> answered{0};
  std::mutex mutex;
  std::vector<std::string> failures;
  std::vector<std::jthread> callers;
  for (const Subject& subject : subjects) {
    for (int i = 0; i < kThreads; ++i) {
      callers.emplace_back([&] {
        while (!stopped) {
          const std::string outcome = outcomeOf([&] { subject.ask("work", {3}); });
          if (outcome == "answered") {
            ++answered;
          } else {
            const std::lock_guard lock(mutex);
            failures.push_back(outcome);
          }
        }
      });
    }
  }
  for (uint64_t i = 1; i <= kRestarts; ++i) {
    EXPECT_TRUE(supervisor().act(Action::kRestart).done);
    for (const auto& manager : managers) {
      EXPECT_TRUE(waitUntil([&] { return manager->statistics().reconnects == i; }, kLong));
    }
    const uint64_t now = answered;
    EXPECT_TRUE(waitUntil([&] { return answered > now + 50; }, kLong));
  }
  stopped = true;
  callers.clear();
  EXPECT_EQ(failures.size(), 0u) << failures.front();
  for (const auto& manager : managers) {
    EXPECT_LE(manager->statistics().callsRerun, kRestarts * kThreads);
  }
}

}  // namespace
}  // namespace isopool::tests
