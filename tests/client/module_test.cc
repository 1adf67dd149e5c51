// SPDX-License-Identifier: BSD-3-Clause
// Modules whose source text a program registers for its workers.
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using NoArguments = at::ArrayRef<Obj>;

std::string answering(int answer) {
  return "def answer():\n    return " + std::to_string(answer) + "\n";
}

int64_t answerIn(InterpreterSession session, const std::string& module) {
  return session.global(module.c_str(), "answer")(NoArguments()).toIValue().toInt();
}

/// Each test has its own manager. All tests share one supervisor.
class Module : public ::testing::Test {
 protected:
  Module() { sharedManager(); }

  InterpreterSession sessionOn(size_t slot) {
    return manager_.allInstances()[slot].acquireSession();
  }
  void replaceWorker(size_t slot) {
    const pid_t victim = manager_.allInstances()[slot].processId().value_or(-1);
    ASSERT_GT(victim, 0);
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    ASSERT_TRUE(waitUntil([&] {
      const auto now = manager_.allInstances()[slot].processId();
      return now && *now != victim;
    }));
  }

  InterpreterManager manager_{2};
};

TEST_F(Module, OfANewManagerIsOnlyTheOneForArgumentNames) {
  EXPECT_EQ(manager_.countRegisteredModuleSources(), 1u);
  InterpreterSession session = sessionOn(0);
  const Obj names = session.global("GetArgumentNamesModule", "getArgumentNames");
  const Obj wrap = session.global("textwrap", "indent");
  EXPECT_EQ(names({wrap}).toIValue().toListRef()[1].toStringRef(), "prefix");
  EXPECT_TRUE(names({session.global("os", "getpid")}).toIValue().isNone());
}

TEST_F(Module, IsImportedByEveryWorker) {
  manager_.registerModuleSource("given", answering(3));
  EXPECT_EQ(manager_.countRegisteredModuleSources(), 2u);
  EXPECT_EQ(answerIn(sessionOn(0), "given"), 3);
  EXPECT_EQ(answerIn(sessionOn(1), "given"), 3);
  EXPECT_THROW(answerIn(sharedManager().acquireOne(), "given"), RemoteError);
}

TEST_F(Module, RegisteredAgainCountsOnceAndItsLastTextHoldsUntilTheImport) {
  manager_.registerModuleSource("given", answering(3));
  manager_.registerModuleSource("given", answering(4));
  EXPECT_EQ(manager_.countRegisteredModuleSources(), 2u);
  EXPECT_EQ(answerIn(sessionOn(0), "given"), 4);
  manager_.registerModuleSource("given", answering(5));
  EXPECT_EQ(answerIn(sessionOn(0), "given"), 4) << "it was imported there";
  EXPECT_EQ(answerIn(sessionOn(1), "given"), 5) << "it was not imported there";
}

TEST_F(Module, ReachesSessionsThatAreOpen) {
  InterpreterSession session = sessionOn(0);
  EXPECT_THROW(session.global("given", "answer"), RemoteError);
  manager_.registerModuleSource("given", answering(3));
  EXPECT_EQ(session.global("given", "answer")(NoArguments()).toIValue().toInt(), 3);
}

TEST_F(Module, ReachesABusyWorkerBeforeItsNextCallAndDoesNotWaitForIt) {
  const Subject subject(manager_);
  InterpreterSession session = subject.object().acquireSession(&manager_.allInstances()[0]);
  const std::string large = answering(3) + "# " + std::string(100'000, 'x') + "\n";
  const Gate gate;
  std::thread busy([&] {
    std::vector<at::IValue> arguments = gate.arguments();
    arguments.insert(arguments.begin(), "wait_at");
    session.self(arguments);
  });
  EXPECT_EQ(gate.arrival(), manager_.allInstances()[0].processId());
  manager_.registerModuleSource("small", answering(2));
  manager_.registerModuleSource("large", large);
  EXPECT_EQ(answerIn(sessionOn(1), "large"), 3);
  std::thread next([&] {
    EXPECT_EQ(answerIn(sessionOn(0), "small"), 2);
    EXPECT_EQ(answerIn(sessionOn(0), "large"), 3);
  });
  gate.open();
  next.join();
  busy.join();
}

TEST_F(Module, ReachesEveryReplacement) {
  manager_.registerModuleSource("early", answering(1));
  EXPECT_EQ(answerIn(sessionOn(0), "early"), 1);
  // The first replacement is the spare, which existed before.
  for (int round = 0; round < 3; ++round) {
    const std::string late = "late" + std::to_string(round);
    manager_.registerModuleSource(late, answering(round));
    replaceWorker(0);
    EXPECT_EQ(answerIn(sessionOn(0), "early"), 1);
    EXPECT_EQ(answerIn(sessionOn(0), late), round);
  }
}

TEST_F(Module, IsSeenByCallsOfObjects) {
  const Subject subject(manager_);
  manager_.registerModuleSource("given", "GREETING = 'good morning'\n");
  EXPECT_EQ(subject.text("constant", {"given", "GREETING"}), "good morning");
}

TEST_F(Module, OfSysPathTakesPrecedence) {
  const auto folder = testFolder() / "wins";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "twice_there.py") << answering(1);
  InterpreterManager manager(1, std::make_shared<PathEnvironment>(folder));
  manager.registerModuleSource("twice_there", answering(2));
  EXPECT_EQ(answerIn(manager.acquireOne(), "twice_there"), 1);
  EXPECT_EQ(answerIn(manager.acquireOne(), "twice_there"), 1);
}

TEST_F(Module, ShowsItsLinesInTracebacks) {
  manager_.registerModuleSource("failing",
                                "def fail(what):\n"
                                "    raise ValueError('no ' + what)  # a line to be found\n");
  try {
    sessionOn(0).global("failing", "fail")({"luck"});
    FAIL() << "no error";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.message(), "no luck");
    EXPECT_NE(error.traceback().find("_deploy_internal.failing"), std::string::npos);
    EXPECT_NE(error.traceback().find("# a line to be found"), std::string::npos)
        << error.traceback();
    EXPECT_NE(std::string(error.what()).find("_deploy_internal.failing(2): fail"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Module, WithDotsIsInAPackage) {
  manager_.registerModuleSource("tree", "from tree.branch.leaf import answer\n");
  manager_.registerModuleSource("tree.branch", "");
  manager_.registerModuleSource("tree.branch.leaf", answering(7));
  EXPECT_EQ(answerIn(sessionOn(0), "tree"), 7);
  EXPECT_EQ(answerIn(sessionOn(1), "tree.branch.leaf"), 7);
  // A module that is registered after its package was imported.
  manager_.registerModuleSource("tree.branch.leaf.vein", answering(8));
  EXPECT_EQ(answerIn(sessionOn(0), "tree.branch.leaf.vein"), 8);
}

TEST_F(Module, WithASyntaxErrorFailsAtItsImport) {
  manager_.registerModuleSource("broken", "def answer(:\n");
  manager_.registerModuleSource("not_utf8", "answer = '\xff\xfe'\n");
  for (const char* name : {"broken", "not_utf8"}) {
    try {
      sessionOn(0).global(name, "answer");
      ADD_FAILURE() << "no error";
    } catch (const RemoteError& error) {
      EXPECT_TRUE(error.pythonType() == "SyntaxError") << error.pythonType();
    }
  }
  manager_.registerModuleSource("broken", answering(9));
  EXPECT_EQ(answerIn(sessionOn(0), "broken"), 9) << "it was not imported before";
}

TEST_F(Module, WithAnImpossibleNameIsRefused) {
  for (const char* name : {"", ".", ".a", "a.", "a..b"}) {
    EXPECT_THROW(manager_.registerModuleSource(name, ""), Error) << name;
  }
  EXPECT_EQ(manager_.countRegisteredModuleSources(), 1u);
}

TEST_F(Module, MayBeWhatAPackageNeeds) {
  EXPECT_THROW(manager_.loadPackage(packagePath("extern.pt")), c10::Error);
  manager_.registerModuleSource("isopool_no_such_module", answering(5));
  Package package = manager_.loadPackage(packagePath("extern.pt"));
  const InterpreterSession session = package.acquireSession();
  const Obj entry = session.self.attr("import_module")({"entry"});
  EXPECT_EQ(entry.attr("other").attr("answer")(NoArguments()).toIValue().toInt(), 5);
}

// A text that is too long for a notification is sent by a request of its own, before the call.
TEST_F(Module, IsNotAwaitedFromAStoppedWorkerByACallThatAnotherWorkerCanRun) {
  const Subject subject(manager_);
  const Gate gate;
  std::future<at::IValue> waiting =
      std::async(std::launch::async, [&] { return subject.ask("wait_at", gate.arguments()); });
  const pid_t busy = gate.arrival();
  pid_t stopped = 0;
  for (const Interpreter& each : manager_.allInstances()) {
    if (each.processId() != busy) stopped = each.processId().value_or(0);
  }
  ASSERT_GT(stopped, 0);
  ASSERT_EQ(::kill(stopped, SIGSTOP), 0);
  manager_.registerModuleSource("long", "#" + std::string(1 << 20, '-'));
  std::future<int64_t> call = std::async(std::launch::async, [&] { return subject.number("pid"); });
  gate.open();
  EXPECT_NO_THROW(waiting.get());
  EXPECT_EQ(call.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(::kill(stopped, SIGCONT), 0) << "the worker was killed before its time";
  EXPECT_EQ(call.get(), busy);
}

TEST_F(Module, IsRegisteredAndUsedByManyThreads) {
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 10; ++i) {
        const int number = thread * 10 + i;
        const std::string name = "of_thread" + std::to_string(number);
        manager_.registerModuleSource(name, answering(number));
        if (answerIn(sessionOn(static_cast<size_t>(i) % 2), name) == number) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
  EXPECT_EQ(manager_.countRegisteredModuleSources(), 81u);
}

}  // namespace
}  // namespace isopool::tests
