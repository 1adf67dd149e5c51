// SPDX-License-Identifier: BSD-3-Clause
// PoolOptions of real pools.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <mutex>

#include "tests/client/attached_managers.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using NoArguments = at::ArrayRef<Obj>;

PoolOptions oneWorker() {
  PoolOptions options;
  options.workers = 1;
  return options;
}

std::string variableIn(InterpreterManager& manager, const char* name) {
  InterpreterSession session = manager.acquireOne();
  return session.global("os", "getenv")({name, "not set"}).toIValue().toStringRef();
}

int64_t supervisorOf(InterpreterManager& manager) {
  InterpreterSession session = manager.acquireOne();
  return session.global("os", "getppid")(NoArguments()).toIValue().toInt();
}

PoolSetting settingIn(const InterpreterManager& manager, const std::string& name) {
  for (const PoolSetting& each : manager.options()) {
    if (each.name == name) return each;
  }
  return {name, "not reported", ""};
}

/// The events that a pool's logger gets.
class Events {
 public:
  std::function<void(LogLevel, std::string_view)> logger() {
    return [this](LogLevel, std::string_view text) {
      std::lock_guard lock(mutex_);
      text_ += std::string(text) + "\n";
    };
  }
  bool contain(const std::string& words) {
    std::lock_guard lock(mutex_);
    return text_.find(words) != std::string::npos;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

TEST(PoolOptionsTest, TwoPoolsOfOneProgramMayDiffer) {
  const auto folder = testFolder() / "of-one-pool";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "only_in_one_pool.py") << "def answer():\n    return 5\n";
  PoolOptions options = oneWorker();
  options.variables = {{"ISOTEST_COLOUR", "green"}};
  options.pythonPaths = {folder};
  options.preloadModules = {"wave"};
  options.workerMemory = 512u << 20;
  options.sandbox = SandboxLevel::kStrict;
  options.sandboxRead = {folder};
  InterpreterManager one(options);
  InterpreterManager other(oneWorker());

  EXPECT_EQ(variableIn(one, "ISOTEST_COLOUR"), "green");
  EXPECT_EQ(variableIn(other, "ISOTEST_COLOUR"), "not set");
  EXPECT_EQ(one.acquireOne().global("only_in_one_pool", "answer")(NoArguments()).toIValue().toInt(),
            5);
  EXPECT_THROW(other.acquireOne().global("only_in_one_pool", "answer"), RemoteError);
  const auto imported = [](InterpreterManager& manager) {
    return manager.acquireOne()
        .global("sys", "modules")
        .attr("__contains__")({"wave"})
        .toIValue()
        .toBool();
  };
  EXPECT_TRUE(imported(one));
  EXPECT_FALSE(imported(other));
  const auto allocate = [](InterpreterManager& manager) {
    return manager.acquireOne().global("builtins", "bytearray")({int64_t{700} << 20});
  };
  EXPECT_THROW(allocate(one), RemoteError);
  EXPECT_NO_THROW(allocate(other));
}

TEST(PoolOptionsTest, EqualOptionsShareASupervisorAndDifferentOnesDoNot) {
  PoolOptions options = oneWorker();
  options.spares = 0;
  InterpreterManager one(options);
  InterpreterManager same(options);
  options.restartLimit = 9;
  InterpreterManager other(options);
  EXPECT_EQ(supervisorOf(one), supervisorOf(same));
  EXPECT_NE(supervisorOf(one), supervisorOf(other));
}

TEST(PoolOptionsTest, TheReportStatesWhatHoldsAndWhereItCameFrom) {
  const auto file = testFolder() / "isopool.toml";
  std::ofstream(file) << "restart_limit = 4\nquarantine = \"5s\"\n";
  const ScopedVariable config("ISOPOOL_CONFIG=" + file.string());
  const ScopedVariable spares("ISOPOOL_SPARES=0");
  PoolOptions options = oneWorker();
  options.spares = 2;                               // the variable overrides it
  options.restartLimit = 7;                         // the file overrides it
  options.restartWindow = std::chrono::seconds(9);  // nothing overrides it
  InterpreterManager manager(options);

  EXPECT_EQ(settingIn(manager, "spares").value, "0");
  EXPECT_EQ(settingIn(manager, "spares").source, "environment ISOPOOL_SPARES");
  EXPECT_EQ(settingIn(manager, "restart_limit").value, "4");
  EXPECT_EQ(settingIn(manager, "restart_limit").source, "file " + file.string() + ":1");
  EXPECT_EQ(settingIn(manager, "restart_window").value, "9s");
  EXPECT_EQ(settingIn(manager, "restart_window").source, "program");
  EXPECT_EQ(settingIn(manager, "fork_timeout").value, "5s");
  EXPECT_EQ(settingIn(manager, "fork_timeout").source, "default");
  EXPECT_EQ(settingIn(manager, "max_clients").value, "not reported")
      << "a private supervisor does not use it";
}

TEST(PoolOptionsTest, APrivatePoolRecyclesItsWorkersWithoutAFailedCall) {
  PoolOptions options = oneWorker();
  options.recycle.calls = 20;
  options.recycle.jitterPercent = 0;
  InterpreterManager manager(options);
  const Subject subject(manager);
  const int64_t first = subject.number("pid");
  EXPECT_TRUE(waitUntil([&] { return subject.number("pid") != first; }));
  EXPECT_TRUE(waitUntil([&] { return manager.workersReplaced() > 0; }));
}

TEST(PoolOptionsTest, ThreadsOfTheLibrariesAreAsChosen) {
  PoolOptions options = oneWorker();
  options.threadsPerWorker = 2;
  InterpreterManager two(options);
  InterpreterManager one(oneWorker());
  const auto threads = [](InterpreterManager& manager) {
    InterpreterSession session = manager.acquireOne();
    return session.global("torch", "get_num_threads")(NoArguments()).toIValue().toInt();
  };
  EXPECT_EQ(threads(two), 2);
  EXPECT_EQ(threads(one), 1);
}

TEST(PoolOptionsTest, AWrongOptionStartsNoProcess) {
  const ProcessMark mark;
  const ScopedVariable variable(mark.variable());
  PoolOptions options = oneWorker();
  options.outputArena = 1;
  EXPECT_THROW(InterpreterManager{options}, Error);
  EXPECT_TRUE(mark.processes().empty());
}

// Each value is valid, only together they are not: the supervisor refuses them.
TEST(PoolOptionsTest, OptionsThatContradictEachOtherAreRefusedWithTheReason) {
  PoolOptions options = oneWorker();
  options.sandbox = SandboxLevel::kNone;
  options.workerMemory = 1u << 30;
  try {
    InterpreterManager manager(options);
    FAIL() << "not refused";
  } catch (const SupervisorLost& error) {
    EXPECT_NE(std::string(error.what()).find("PoolOptions: sandbox.memory: the sandbox level none"),
              std::string::npos)
        << error.what();
  }
}

TEST(PoolOptionsTest, APoolsLoggerGetsTheEventsOfThatPoolOnly) {
  Events ofOne;
  Events ofProgram;
  setLogger(ofProgram.logger());
  PoolOptions options = oneWorker();
  options.logger = ofOne.logger();
  {
    InterpreterManager one(options);
    InterpreterManager other(oneWorker());
    EXPECT_EQ(supervisorOf(one), supervisorOf(other)) << "a logger is not a property of workers";
    const pid_t first = one.allInstances()[0].processId().value_or(-1);
    const pid_t second = other.allInstances()[0].processId().value_or(-1);
    ASSERT_GT(first, 0);
    ASSERT_GT(second, 0);
    const std::string ofFirst = "(pid " + std::to_string(first) + ") died";
    const std::string ofSecond = "(pid " + std::to_string(second) + ") died";
    ASSERT_EQ(::kill(first, SIGKILL), 0);
    ASSERT_EQ(::kill(second, SIGKILL), 0);
    EXPECT_TRUE(waitUntil([&] { return ofOne.contain(ofFirst) && ofProgram.contain(ofSecond); }));
    EXPECT_FALSE(ofOne.contain(ofSecond));
    EXPECT_FALSE(ofProgram.contain(ofFirst));
  }
  setLogger(nullptr);
}

class SharedPoolOptions : public AttachedManagers {};

TEST_F(SharedPoolOptions, TheReportHasTheSettingsOfTheSupervisor) {
  serve({"--spares", "0", "--grace", "700ms"});
  PoolOptions options = oneWorker();
  options.sharedSupervisor = supervisor().address();
  options.cleanupTimeout = std::chrono::seconds(3);
  InterpreterManager manager(options);
  EXPECT_EQ(settingIn(manager, "spares").source, "flag --spares");
  EXPECT_EQ(settingIn(manager, "grace").value, "700ms");
  EXPECT_EQ(settingIn(manager, "ISOPOOL_CLEANUP_TIMEOUT").value, "3s");
  EXPECT_EQ(settingIn(manager, "ISOPOOL_CLEANUP_TIMEOUT").source, "program");
}

TEST_F(SharedPoolOptions, AFieldThatItsOperatorDecidesIsRefused) {
  serve({});
  PoolOptions options = oneWorker();
  options.sharedSupervisor = supervisor().address();
  options.spares = 2;
  EXPECT_THROW(InterpreterManager{options}, Error);
}

}  // namespace
}  // namespace isopool::tests
