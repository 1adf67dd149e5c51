// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>

#include <fstream>
#include <set>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

namespace fs = std::filesystem;
using NoArguments = at::ArrayRef<Obj>;

/// Makes a folder with one module, whose answer() returns `answer`.
std::string folderWithModule(const std::string& folder, const std::string& module, int answer) {
  const fs::path path = testFolder() / folder;
  fs::create_directories(path);
  std::ofstream(path / (module + ".py")) << "def answer():\n    return " << answer << "\n";
  return path;
}

int64_t answerOf(InterpreterManager& manager, const char* module) {
  return manager.acquireOne().global(module, "answer")(NoArguments()).toIValue().toInt();
}

/// Kills the slot's worker and waits for its replacement.
void replaceWorker(InterpreterManager& manager, size_t slot) {
  const Interpreter& interpreter = manager.allInstances()[slot];
  const pid_t victim = interpreter.processId().value_or(-1);
  ASSERT_GT(victim, 0);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  EXPECT_TRUE(waitUntil([&] {
    const auto now = interpreter.processId();
    return now && *now != victim;
  }));
}

TEST(Environment, ExternModulesAreFoundOnItsPath) {
  const std::string folder = folderWithModule("extern", "isopool_no_such_module", 5);
  InterpreterManager manager(1, std::make_shared<PathEnvironment>(folder));
  EXPECT_EQ(answerOf(manager, "isopool_no_such_module"), 5);
  Package package = manager.loadPackage(packagePath("extern.pt"));
  {
    InterpreterSession session = package.acquireSession();
    const Obj model = session.self.attr("import_module")({"entry"});
    EXPECT_EQ(model.attr("other").attr("answer")(NoArguments()).toIValue().toInt(), 5);
  }
  replaceWorker(manager, 0);
  EXPECT_EQ(answerOf(manager, "isopool_no_such_module"), 5);
}

TEST(Environment, ARelativePathIsRelativeToWhereItWasMade) {
  folderWithModule("relative", "found_by_relative_path", 6);
  const fs::path before = fs::current_path();
  fs::current_path(testFolder());
  const auto environment = std::make_shared<PathEnvironment>("relative");
  fs::current_path(before);
  InterpreterManager manager(1, environment);
  EXPECT_EQ(answerOf(manager, "found_by_relative_path"), 6);
}

TEST(Environment, TwoDifferentOnesDoNotSeeEachOther) {
  InterpreterManager one(1,
                         std::make_shared<PathEnvironment>(folderWithModule("one", "of_two", 1)));
  InterpreterManager two(1,
                         std::make_shared<PathEnvironment>(folderWithModule("two", "of_two", 2)));
  EXPECT_EQ(answerOf(one, "of_two"), 1);
  EXPECT_EQ(answerOf(two, "of_two"), 2);
  EXPECT_THROW(answerOf(sharedManager(), "of_two"), RemoteError);
  replaceWorker(one, 0);
  EXPECT_EQ(answerOf(one, "of_two"), 1);
  EXPECT_EQ(answerOf(two, "of_two"), 2);
}

TEST(Environment, VariablesOfTheProgramReachTheWorkers) {
  const OwnPool pool(1, {"ISOPOOL_TEST_GREETING=good morning"});
  EXPECT_EQ(pool.subject().text("environment", {"ISOPOOL_TEST_GREETING"}), "good morning");
  EXPECT_EQ(sharedSubject().text("environment", {"ISOPOOL_TEST_GREETING"}), "");
}

TEST(Environment, ANullOneIsTheLocalPython) {
  sharedManager();
  InterpreterManager manager(1, nullptr);
  EXPECT_EQ(manager.acquireOne().global("math", "floor")({2.5}).toIValue().toInt(), 2);
}

class Marking : public Environment {
 public:
  void configureInterpreter(Interpreter* interpreter) override {
    InterpreterSession session = interpreter->acquireSession();
    const Obj modules = session.global("sys", "modules");
    modules.attr("__getitem__")({"torch.version"})
        .attr("__setattr__")({"isopool_mark", "configured"});
    processes.insert(session.global("os", "getpid")(NoArguments()).toIValue().toInt());
    ++calls;
  }
  std::set<int64_t> processes;
  int calls = 0;
};

TEST(Environment, IsAppliedToEveryWorkerAndToReplacements) {
  const auto environment = std::make_shared<Marking>();
  InterpreterManager manager(2, environment);
  EXPECT_EQ(environment->calls, 2);
  const Subject subject(manager);
  std::set<int64_t> expected;
  const auto check = [&] {
    for (const Interpreter& worker : manager.allInstances()) {
      InterpreterSession session = subject.object().acquireSession(&worker);
      const Obj mark = session.global("torch.version", "isopool_mark");
      EXPECT_EQ(mark.toIValue().toStringRef(), "configured");
      expected.insert(worker.processId().value_or(-1));
    }
  };
  check();
  for (const size_t slot : {0, 1, 0}) {
    replaceWorker(manager, slot);
    check();
  }
  EXPECT_EQ(environment->calls, 5);
  EXPECT_EQ(environment->processes, expected);
}

TEST(Environment, IsAppliedToAReplacementBeforeItsFirstCallOfThePool) {
  const auto environment = std::make_shared<Marking>();
  InterpreterManager manager(1, environment);
  const Subject subject(manager);
  replaceWorker(manager, 0);
  const int64_t process = subject.number("pid");
  EXPECT_EQ(environment->processes.count(process), 1u);
}

TEST(Environment, AnErrorWhileConfiguringIsThrownByTheConstructor) {
  class Failing : public Environment {
   public:
    void configureInterpreter(Interpreter* interpreter) override {
      interpreter->acquireSession().global("isopool_no_such_module", "x");
    }
  };
  try {
    const InterpreterManager manager(1, std::make_shared<Failing>());
    FAIL() << "no error";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.pythonType(), "ModuleNotFoundError");
  }
}

}  // namespace
}  // namespace isopool::tests
