// SPDX-License-Identifier: BSD-3-Clause
// Subclasses of Environment that a program defines itself.
#include <signal.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using NoArguments = at::ArrayRef<Obj>;

/// Configures each interpreter with a function of the test.
class Doing : public Environment {
 public:
  explicit Doing(std::function<void(Interpreter&)> work) : work_(std::move(work)) {}
  void configureInterpreter(Interpreter* interpreter) override { work_(*interpreter); }
  void addPath(const std::string& folder) { extraPythonPaths_.push_back(folder); }

 private:
  const std::function<void(Interpreter&)> work_;
};

void setMark(InterpreterSession& session, const char* value) {
  session.global("os", "environ").attr("__setitem__")({"ISOPOOL_TEST_MARK", value});
}

void replaceWorker(InterpreterManager& manager, size_t slot) {
  const Interpreter& interpreter = manager.allInstances()[slot];
  const pid_t victim = interpreter.processId().value_or(-1);
  ASSERT_GT(victim, 0);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  ASSERT_TRUE(waitUntil([&] {
    const auto now = interpreter.processId();
    return now && *now != victim;
  }));
}

TEST(OwnEnvironment, IsAppliedOncePerLifeHoweverManyThreadsComeFirst) {
  std::mutex mutex;
  std::multiset<int> configured;
  InterpreterManager manager(2, std::make_shared<Doing>([&](Interpreter& interpreter) {
                               InterpreterSession one = interpreter.acquireSession();
                               InterpreterSession two = interpreter.acquireSession();
                               setMark(two, "set");
                               one.global("math", "pi");
                               std::lock_guard lock(mutex);
                               configured.insert(interpreter.processId().value_or(-1));
                             }));
  const Subject subject(manager);
  for (int round = 0; round < 3; ++round) {
    replaceWorker(manager, 0);
    replaceWorker(manager, 1);
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        if (thread % 2 == 0) {
          EXPECT_EQ(subject.text("environment", {"ISOPOOL_TEST_MARK"}), "set");
        } else {
          InterpreterSession session = manager.allInstances()[thread / 2 % 2].acquireSession();
          EXPECT_EQ(session.global("os", "getenv")({"ISOPOOL_TEST_MARK"}).toIValue(), "set");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::lock_guard lock(mutex);
  EXPECT_EQ(configured.size(), 8u) << "four pairs of workers";
  EXPECT_EQ(std::set<int>(configured.begin(), configured.end()).size(), 8u) << "each once";
}

TEST(OwnEnvironment, IsAppliedBeforeAnythingIsUnpickled) {
  InterpreterManager manager(1, std::make_shared<Doing>([](Interpreter& interpreter) {
                               InterpreterSession session = interpreter.acquireSession();
                               setMark(session, "set");
                             }));
  const Subject subject(manager);
  EXPECT_EQ(subject.text("mark_when_unpickled"), "set");
  for (int round = 0; round < 2; ++round) {
    replaceWorker(manager, 0);
    EXPECT_EQ(subject.text("mark_when_unpickled"), "set");
  }
}

TEST(OwnEnvironment, HasItsPathsFromTheBeginning) {
  const auto folder = testFolder() / "own-paths";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "module_of_own_path.py") << "ANSWER = 6\n";
  std::atomic<int> right{0};
  const auto environment = std::make_shared<Doing>([&](Interpreter& interpreter) {
    InterpreterSession session = interpreter.acquireSession();
    if (session.global("module_of_own_path", "ANSWER").toIValue().toInt() == 6) ++right;
  });
  environment->addPath(folder);
  InterpreterManager manager(1, environment);
  EXPECT_EQ(right, 1);
  replaceWorker(manager, 0);
  EXPECT_EQ(manager.acquireOne().global("module_of_own_path", "ANSWER").toIValue().toInt(), 6);
  EXPECT_EQ(right, 2);
}

TEST(OwnEnvironment, MayThrowWhatItLikesOutOfTheManagersConstructor) {
  const ProcessMark mark;
  {
    const ScopedVariable variable(mark.variable());
    EXPECT_THROW(InterpreterManager(2, std::make_shared<Doing>([](Interpreter&) { throw 42; })),
                 int);
    EXPECT_THROW(InterpreterManager(2, std::make_shared<Doing>([](Interpreter&) {
                                      throw std::logic_error("not today");
                                    })),
                 std::logic_error);
    EXPECT_THROW(InterpreterManager(2, std::make_shared<Doing>([](Interpreter& interpreter) {
                                      interpreter.acquireSession().global("os",
                                                                          "abort")(NoArguments());
                                    })),
                 WorkerLost);
  }
  EXPECT_TRUE(mark.waitUntilNoneIsLeft(kPatience)) << "processes are left over";
}

TEST(OwnEnvironment, ThatFailsForAReplacementFailsItsCallAndIsTriedAgain) {
  std::atomic<int> calls{0};
  InterpreterManager manager(1, std::make_shared<Doing>([&](Interpreter&) {
                               if (++calls == 2) throw std::runtime_error("not now");
                             }));
  const Subject subject(manager);
  replaceWorker(manager, 0);
  EXPECT_THROW(subject.ask("pid"), std::runtime_error);
  EXPECT_GT(subject.number("pid"), 0);
  EXPECT_EQ(calls, 3);
}

TEST(OwnEnvironment, WhoseWorkerDiesUnderItIsAppliedToTheNextUnseen) {
  std::atomic<int> calls{0};
  InterpreterManager manager(1, std::make_shared<Doing>([&](Interpreter& interpreter) {
                               InterpreterSession session = interpreter.acquireSession();
                               if (++calls == 2 || calls == 4) {
                                 ::kill(interpreter.processId().value(), SIGKILL);
                               }
                               setMark(session, "set");
                             }));
  const Subject subject(manager);
  replaceWorker(manager, 0);
  EXPECT_EQ(subject.text("environment", {"ISOPOOL_TEST_MARK"}), "set");
  EXPECT_EQ(calls, 3);
  replaceWorker(manager, 0);
  InterpreterSession session = subject.object().acquireSession();
  EXPECT_EQ(session.self({"environment", "ISOPOOL_TEST_MARK"}).toIValue().toStringRef(), "set");
  EXPECT_EQ(calls, 5);
}

TEST(OwnEnvironment, ThatAlwaysKillsItsWorkerEndsCallsWithAnError) {
  std::atomic<bool> kills{false};
  InterpreterManager manager(1, std::make_shared<Doing>([&](Interpreter& interpreter) {
                               InterpreterSession session = interpreter.acquireSession();
                               session.global("math", "pi");
                               if (kills) session.global("os", "abort")(NoArguments());
                             }));
  const Subject subject(manager);
  kills = true;
  replaceWorker(manager, 0);
  EXPECT_THROW(subject.ask("pid"), WorkerLost);
  EXPECT_THROW(subject.object().acquireSession(), WorkerLost);
  kills = false;
  EXPECT_GT(subject.number("pid"), 0);
}

}  // namespace
}  // namespace isopool::tests
