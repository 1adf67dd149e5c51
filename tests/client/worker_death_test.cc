// SPDX-License-Identifier: BSD-3-Clause
// Deaths of workers. The tests really kill them.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The WorkerLost that `use` throws.
WorkerLost lossOf(const std::function<void()>& use) {
  try {
    use();
    ADD_FAILURE() << "no worker was lost";
  } catch (const WorkerLost& lost) {
    return lost;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
  }
  return {WorkerLost::Death{}, false};
}

/// Each test has its own manager. All tests share one supervisor.
class WorkerDeath : public ::testing::Test {
 protected:
  WorkerDeath() { sharedManager(); }

  pid_t processOf(size_t slot) { return manager_.allInstances()[slot].processId().value_or(-1); }
  InterpreterSession sessionOn(size_t slot) {
    return subject_.object().acquireSession(&manager_.allInstances()[slot]);
  }
  /// Waits until each slot has a worker that answers.
  void expectWhole() {
    for (size_t slot = 0; slot < manager_.allInstances().size(); ++slot) {
      EXPECT_TRUE(waitUntil([&] { return processOf(slot) != -1; })) << "slot " << slot;
      EXPECT_EQ(sessionOn(slot).self({"slot"}).toIValue().toInt(), static_cast<int64_t>(slot));
    }
  }

  InterpreterManager manager_{2};
  Subject subject_{manager_};
};

TEST_F(WorkerDeath, InTheMiddleOfACallIsReportedWithAllThatIsKnown) {
  const Gate gate;
  auto call = std::async(std::launch::async, [&] {
    return lossOf([&] { subject_.ask("wait_at", gate.arguments()); });
  });
  const pid_t victim = gate.arrival();
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  const WorkerLost lost = call.get();
  EXPECT_EQ(lost.signal(), SIGKILL);
  EXPECT_TRUE(lost.causeKnown());
  EXPECT_TRUE(lost.started());
  EXPECT_EQ(lost.processId(), victim);
  EXPECT_TRUE(contains(lost.worker(), "(pid " + std::to_string(victim) + ")")) << lost.worker();
  EXPECT_TRUE(contains(lost.what(), "SIGKILL")) << lost.what();
  EXPECT_TRUE(contains(lost.what(), lost.worker())) << lost.what();
  expectWhole();
}

TEST_F(WorkerDeath, CarriesTheLastLinesOfItsErrorStream) {
  const int64_t victim = subject_.number("pid");
  subject_.ask("complain", {"the lights are going out"});
  const WorkerLost lost = lossOf([&] { subject_.ask("die", {SIGKILL}); });
  EXPECT_EQ(lost.processId(), victim);
  EXPECT_TRUE(contains(lost.crashLog(), "the lights are going out\n")) << lost.crashLog();
  EXPECT_TRUE(contains(lost.what(), "the lights are going out")) << lost.what();
}

TEST_F(WorkerDeath, ByACrashCarriesThePythonStack) {
  const WorkerLost lost = lossOf([&] { subject_.ask("crash"); });
  EXPECT_EQ(lost.signal(), SIGSEGV);
  EXPECT_TRUE(lost.started());
  EXPECT_TRUE(contains(lost.crashLog(), "Segmentation fault")) << lost.crashLog();
  EXPECT_TRUE(contains(lost.crashLog(), " in crash")) << lost.crashLog();
}

// The old name stays for one release, so that programs have time to change.
TEST_F(WorkerDeath, HasItsCrashLogUnderTheOldNameToo) {
  subject_.ask("complain", {"the lights are going out"});
  const WorkerLost lost = lossOf([&] { subject_.ask("die", {SIGKILL}); });
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  EXPECT_EQ(lost.lastWords(), lost.crashLog());
#pragma GCC diagnostic pop
  EXPECT_NE(lost.crashLog(), "");
}

TEST_F(WorkerDeath, ByExitCarriesTheExitCode) {
  const WorkerLost lost = lossOf([&] { subject_.ask("exit_now", {3}); });
  EXPECT_EQ(lost.exitCode(), 3);
  EXPECT_EQ(lost.signal(), 0);
  EXPECT_TRUE(lost.causeKnown());
  EXPECT_TRUE(contains(lost.what(), "exit code 3")) << lost.what();
  // A living process also has the exit code 0, so only the supervisor can report this death.
  const WorkerLost silent = lossOf([&] { subject_.ask("exit_now", {0}); });
  EXPECT_EQ(silent.exitCode(), 0);
  EXPECT_EQ(silent.signal(), 0);
  EXPECT_TRUE(silent.causeKnown());
}

TEST_F(WorkerDeath, OfAnIdleWorkerIsHidden) {
  for (int round = 0; round < 5; ++round) {
    const int64_t victim = subject_.number("pid");
    const uint64_t replaced = manager_.workersReplaced();
    ASSERT_EQ(::kill(static_cast<pid_t>(victim), SIGKILL), 0);
    for (int i = 0; i < 10; ++i) EXPECT_NE(subject_.number("pid"), victim);
    EXPECT_TRUE(waitUntil([&] { return manager_.workersReplaced() == replaced + 1; }));
  }
  expectWhole();
}

TEST_F(WorkerDeath, BeforeALoadBeganIsHidden) {
  // Without a spare the slot has the dead worker until the next one is forked.
  OwnPool pool(1, {"ISOPOOL_SPARES=0", "ISOPOOL_RESTART_LIMIT=1000"});
  Package package = pool.manager().loadPackage(packagePath());
  for (int i = 0; i < 20; ++i) {
    const pid_t worker = pool.processOf(0);
    ASSERT_EQ(::kill(worker, SIGKILL), 0);
    ASSERT_TRUE(waitUntilDead(worker, kPatience));
    EXPECT_NE(package.loadPickle("model", "model.pkl")({"pid"}).toInt(), worker);
  }
}

TEST_F(WorkerDeath, OfAllWorkersAtOnceIsHidden) {
  ::kill(processOf(0), SIGKILL);
  ::kill(processOf(1), SIGKILL);
  EXPECT_GT(subject_.number("pid"), 0);
  EXPECT_TRUE(waitUntil([&] { return manager_.workersReplaced() == 2; }));
  expectWhole();
}

TEST_F(WorkerDeath, ReplacementLivesBehindTheSameInterpreter) {
  const Interpreter* interpreter = &manager_.allInstances()[1];
  const pid_t victim = processOf(1);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  EXPECT_TRUE(waitUntil([&] {
    const auto now = interpreter->processId();
    return now && *now != victim;
  }));
  EXPECT_EQ(interpreter, &manager_.allInstances()[1]);
  InterpreterSession session = subject_.object().acquireSession(interpreter);
  EXPECT_EQ(session.self({"pid"}).toIValue().toInt(), *interpreter->processId());
  EXPECT_EQ(session.self({"slot"}).toIValue().toInt(), 1);
}

TEST_F(WorkerDeath, EndsItsSessionsAndObjectsForGood) {
  InterpreterSession session = sessionOn(0);
  const Obj value = session.fromIValue(3);
  const Obj self = session.self;
  const pid_t victim = processOf(0);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  for (int round = 0; round < 2; ++round) {  // in the second round its replacement exists
    for (const auto& use : std::vector<std::function<void()>>{
             [&] { value.toIValue(); }, [&] { value.attr("real"); }, [&] { value.hasattr("real"); },
             [&] { self({"pid"}); }, [&] { session.global("math", "pi"); },
             [&] { session.fromIValue(1); }}) {
      const WorkerLost lost = lossOf(use);
      EXPECT_EQ(lost.processId(), victim);
      EXPECT_EQ(lost.signal(), SIGKILL);
    }
    EXPECT_TRUE(waitUntil([&] { return processOf(0) != -1 && processOf(0) != victim; }));
  }
  EXPECT_EQ(sessionOn(0).self({"pid"}).toIValue().toInt(), processOf(0));
}

TEST_F(WorkerDeath, InAStepIsNotRunElsewhere) {
  const std::string log = testFolder() / "steps-that-ran";
  InterpreterSession session = sessionOn(0);
  const WorkerLost lost = lossOf([&] { session.self({"die_once", log}); });
  EXPECT_TRUE(lost.started());
  expectWhole();
  std::ifstream file(log);
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(file), {}, '\n'), 1);
  EXPECT_EQ(manager_.callsRerun(), 0u);
}

TEST_F(WorkerDeath, InAnIdempotentCallRunsItAgain) {
  CallOptions twice;
  twice.idempotent = true;
  const std::string log = testFolder() / "idempotent";
  EXPECT_GT(subject_.ask("die_once", {log}, twice).toInt(), 0);
  EXPECT_EQ(manager_.callsRerun(), 1u);
  const WorkerLost lost =
      lossOf([&] { subject_.ask("die_once", {(testFolder() / "only-once").string()}); });
  EXPECT_TRUE(lost.started());
}

// The call may have had effects, although the worker to which the deadline came never ran it.
TEST_F(WorkerDeath, InAnIdempotentCallHasStartedItIfTheDeadlinePassesBeforeTheSecondTime) {
  OwnPool pool(1, {"ISOPOOL_SPARES=0"});
  const pid_t zygote = pool.tree().zygote();
  ASSERT_GT(zygote, 0);
  ASSERT_EQ(::kill(zygote, SIGSTOP), 0);  // no worker is forked in time
  CallOptions options;
  options.idempotent = true;
  options.deadline = milliseconds(300);
  const std::string mark = testFolder() / "started-before-its-deadline";
  try {
    pool.subject().ask("die_once", {mark}, options);
    ADD_FAILURE() << "the deadline did not pass";
  } catch (const DeadlineExceeded& error) {
    EXPECT_TRUE(error.started()) << error.what();
  }
  EXPECT_TRUE(std::filesystem::exists(mark));
  ::kill(zygote, SIGCONT);
  EXPECT_GT(pool.subject().number("pid"), 0);
}

TEST_F(WorkerDeath, GivesBackTheInputsOfItsCall) {
  // The memory of a worker's inputs is reused after the worker is reaped, at the latest one death
  // later.
  std::set<const void*> places;
  for (int round = 0; round < 12; ++round) {
    const at::Tensor x = empty({3'000'000}).fill_(1);
    places.insert(x.data_ptr());
    EXPECT_THROW(subject_.ask("keep_and_die", {x}), WorkerLost);
    expectWhole();
  }
  EXPECT_LE(places.size(), 3u);
}

TEST_F(WorkerDeath, UnderLoadLosesOnlyCallsThatHadStarted) {
  // Calls with a side effect: each appends its number to a file when it runs.
  const std::string log = testFolder() / "calls-that-ran";
  std::atomic<bool> stop{false};
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::map<int64_t, bool> outcomes;  // true: answered, false: lost
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        const int64_t number = next++;
        bool answered = false;
        try {
          EXPECT_EQ(subject_.number("log", {log, number}), number);
          answered = true;
        } catch (const WorkerLost& lost) {
          EXPECT_TRUE(lost.started());
          EXPECT_EQ(lost.signal(), SIGKILL);
        }
        std::lock_guard lock(mutex);
        outcomes[number] = answered;
      }
    });
  }
  const auto count = [&] {
    std::lock_guard lock(mutex);
    return outcomes.size();
  };
  const auto moreCallsAreDone = [&] {
    const size_t before = count();
    return waitUntil([&] { return count() > before + 20; });
  };
  constexpr int kKills = 12;
  for (int kill = 0; kill < kKills; ++kill) {
    EXPECT_TRUE(moreCallsAreDone());
    const auto slot = static_cast<size_t>(kill % 2);
    pid_t victim = -1;
    EXPECT_TRUE(waitUntil([&] { return (victim = processOf(slot)) != -1; }));
    if (victim > 0) ::kill(victim, SIGKILL);
    EXPECT_TRUE(waitUntil([&] { return processOf(slot) != victim; }));
  }
  EXPECT_TRUE(moreCallsAreDone());
  stop = true;
  for (std::thread& thread : threads) thread.join();

  std::map<int64_t, int> runs;
  std::ifstream file(log);
  for (int64_t number = 0; file >> number;) ++runs[number];
  int lost = 0;
  for (const auto& [number, answered] : outcomes) {
    if (answered) {
      EXPECT_EQ(runs[number], 1) << "call " << number << " was answered";
    } else {
      EXPECT_LE(runs[number], 1) << "call " << number << " was lost";
      ++lost;
    }
  }
  EXPECT_LE(lost, kKills) << "one call runs at a time in a worker";
  EXPECT_TRUE(waitUntil([&] { return manager_.workersReplaced() == kKills; }));
  RecordProperty("lost", lost);
  RecordProperty("rerun", static_cast<int>(manager_.callsRerun()));
}

TEST(WorkerDeathOfOneOfThree, MovesEachCallAtMostOnce) {
  InterpreterManager manager(3);
  const Subject subject(manager);
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kKills = 20;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> calls{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        try {
          subject.number("pid");
        } catch (const WorkerLost& lost) {
          EXPECT_TRUE(lost.started());
        }
        ++calls;
      }
    });
  }
  for (uint64_t kill = 0; kill < kKills; ++kill) {
    const uint64_t before = calls;
    EXPECT_TRUE(waitUntil([&] { return calls > before + 100; }));
    ::kill(manager.allInstances()[kill % 3].processId().value(), SIGKILL);
    EXPECT_TRUE(waitUntil([&] { return manager.workersReplaced() == kill + 1; }));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(manager.callsRerun(), kKills * kThreads);
}

TEST_F(WorkerDeath, RunsCallsElsewhereThatWaitedBehindTheLostOne) {
  // A step of a session occupies each worker. Calls of the pool wait in the rings behind the steps.
  const Gate gates[2];
  std::vector<std::future<bool>> steps;
  for (size_t slot = 0; slot < 2; ++slot) {
    steps.push_back(std::async(std::launch::async, [&, slot] {
      InterpreterSession session = sessionOn(slot);
      std::vector<at::IValue> arguments = gates[slot].arguments();
      arguments.insert(arguments.begin(), "wait_at");
      try {
        session.self(at::ArrayRef<at::IValue>(arguments));
        return true;
      } catch (const WorkerLost& lost) {
        EXPECT_TRUE(lost.started());
        return false;
      }
    }));
  }
  const pid_t victim = gates[0].arrival();
  EXPECT_EQ(victim, processOf(0));
  gates[1].arrival();
  std::vector<std::future<int64_t>> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] { return subject_.number("pid"); }));
  }
  for (auto& each : waiting) {
    EXPECT_EQ(each.wait_for(milliseconds(50)), std::future_status::timeout);
  }
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  EXPECT_FALSE(steps[0].get());
  gates[1].open();
  EXPECT_TRUE(steps[1].get());
  for (auto& each : waiting) EXPECT_NE(each.get(), victim);
  EXPECT_GE(manager_.callsRerun(), 1u);
}

TEST_F(WorkerDeath, KillsTheProcessesThatTheModelHasStarted) {
  InterpreterSession session = sessionOn(0);
  const auto sleeper = static_cast<pid_t>(session.self({"fork_sleeper"}).toIValue().toInt());
  ASSERT_EQ(::kill(sleeper, 0), 0);
  ASSERT_EQ(::kill(processOf(0), SIGKILL), 0);
  EXPECT_TRUE(waitUntilDead(sleeper, kPatience));
}

TEST_F(WorkerDeath, LeavesNoDescriptorsHere) {
  const auto descriptors = [] { return openDescriptors(::getpid()); };
  const auto round = [&] {
    EXPECT_THROW(subject_.ask("die", {SIGKILL}), WorkerLost);
    expectWhole();
    subject_.tensor("add_one", {at::ones({100'000})});
  };
  for (int i = 0; i < 3; ++i) round();
  size_t before = SIZE_MAX;
  EXPECT_TRUE(waitUntil([&] { return std::exchange(before, descriptors()) == before; }));
  for (int i = 0; i < 20; ++i) round();
  // A spare that is being attached has some additional descriptors.
  EXPECT_TRUE(waitUntil([&] { return descriptors() <= before + 2; }))
      << descriptors() << " descriptors, before " << before;
}

// ---- crash loops -----------------------------------------------------------------------------

TEST(CrashLoop, OfWorkersThatNeverAnswerIsReportedAndHeals) {
  OwnPool pool(1, {"ISOPOOL_RESTART_LIMIT=3", "ISOPOOL_QUARANTINE=500ms"});
  const auto tryUntilUnavailable = [&]() -> std::string {
    const auto giveUp = Clock::now() + kPatience;
    while (Clock::now() < giveUp) {
      try {
        pool.subject().ask("die", {SIGKILL});
      } catch (const WorkerLost&) {
        continue;
      } catch (const PoolUnavailable& error) {
        return error.what();
      }
    }
    return "it went on and on";
  };
  const std::string text = tryUntilUnavailable();
  EXPECT_TRUE(contains(text, "ISOPOOL_QUARANTINE")) << text;
  // The quarantine ends after a while. Calls that do not kill their worker then succeed.
  int64_t process = 0;
  EXPECT_TRUE(waitUntil([&] {
    try {
      process = pool.subject().number("pid");
    } catch (const PoolUnavailable&) {
    }
    return process > 0;
  }));
}

TEST(CrashLoop, OfAnIdempotentCallEndsToo) {
  OwnPool pool(1, {"ISOPOOL_RESTART_LIMIT=3", "ISOPOOL_QUARANTINE=30s"});
  CallOptions options;
  options.idempotent = true;
  EXPECT_THROW(pool.subject().ask("die", {SIGKILL}, options), PoolUnavailable);
}

TEST(CrashLoop, OfAnEnvironmentThatKillsItsWorkersIsReportedByTheManager) {
  class Deadly : public Environment {
   public:
    void configureInterpreter(Interpreter* interpreter) override {
      InterpreterSession session = interpreter->acquireSession();
      session.global("os", "_exit")({1});
    }
  };
  EXPECT_THROW(InterpreterManager(1, std::make_shared<Deadly>()), Error);
}

}  // namespace
}  // namespace isopool::tests
