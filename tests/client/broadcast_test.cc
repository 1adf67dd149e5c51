// SPDX-License-Identifier: BSD-3-Clause
// Calls that run on every worker.
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using NoArguments = at::ArrayRef<Obj>;

/// Each test has its own manager. All tests share one supervisor.
class Broadcast : public ::testing::Test {
 protected:
  Broadcast() { sharedManager(); }

  const ReplicatedObj& object() const { return subject_.object(); }
  pid_t processOf(size_t slot) { return manager_.allInstances()[slot].processId().value_or(-1); }
  std::vector<int64_t> processes() {
    std::vector<int64_t> all;
    for (size_t i = 0; i < 3; ++i) all.push_back(processOf(i));
    return all;
  }
  static std::vector<int64_t> numbers(const std::vector<at::IValue>& values) {
    std::vector<int64_t> all;
    for (const at::IValue& value : values) all.push_back(value.toInt());
    return all;
  }
  static std::string newFile(const char* name) { return testFolder() / name; }
  static int64_t linesOf(const std::string& path) {
    std::ifstream file(path);
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  }

  InterpreterManager manager_{3};
  Subject subject_{manager_};
};

TEST_F(Broadcast, AnswersInTheOrderOfTheInterpreters) {
  EXPECT_EQ(numbers(object().callOnAll({"slot"})), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(numbers(object().callOnAll({"pid"})), processes());
  EXPECT_EQ(numbers(manager_.callOnAll("os", "getpid")), processes());
}

TEST_F(Broadcast, RunsEverywhereAtTheSameTime) {
  const std::string place = newFile("meeting");
  EXPECT_EQ(numbers(object().callOnAll({"meet", place, 3})), processes());
}

TEST_F(Broadcast, TakesNamedArguments) {
  const at::Tensor x = at::ones({4});
  for (const at::IValue& sum : object().callOnAll({"sums", x}, {{"scale", 2.0}})) {
    EXPECT_EQ(sum.toDouble(), 8);
  }
  for (const at::IValue& number : manager_.callOnAll("builtins", "int", {"ff"}, {{"base", 16}})) {
    EXPECT_EQ(number.toInt(), 255);
  }
}

TEST_F(Broadcast, SeedsEveryWorker) {
  const auto draw = [&](const Interpreter& worker) {
    return worker.acquireSession().global("torch", "rand")({100}).toIValue().toTensor();
  };
  const auto workers = manager_.allInstances();
  EXPECT_FALSE(draw(workers[0]).equal(draw(workers[1]))) << "each has a seed of its own at first";
  // Its result, a generator, can't cross.
  for (const at::IValue& value : manager_.callOnAll("torch", "manual_seed", {7})) {
    EXPECT_TRUE(value.isNone());
  }
  const at::Tensor first = draw(workers[0]);
  EXPECT_TRUE(first.equal(draw(workers[1])));
  EXPECT_TRUE(first.equal(draw(workers[2])));
  at::manual_seed(7);
  EXPECT_TRUE(first.equal(at::rand({100})));
}

TEST_F(Broadcast, SetsThreadCountsOfEveryWorker) {
  EXPECT_EQ(numbers(manager_.callOnAll("torch", "get_num_threads")),
            (std::vector<int64_t>{1, 1, 1}));
  manager_.callOnAll("torch", "set_num_threads", {2});
  EXPECT_EQ(numbers(manager_.callOnAll("torch", "get_num_threads")),
            (std::vector<int64_t>{2, 2, 2}));
}

TEST_F(Broadcast, RunsUnderTheCallersModes) {
  for (const at::IValue& mode : manager_.callOnAll("torch", "is_grad_enabled")) {
    EXPECT_TRUE(mode.toBool());
  }
  const c10::AutoGradMode guard(false);
  for (const at::IValue& mode : manager_.callOnAll("torch", "is_grad_enabled")) {
    EXPECT_FALSE(mode.toBool());
  }
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto products = manager_.callOnAll("torch", "mm", {at::ones({2, 2}), at::ones({2, 2})});
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::set_autocast_dtype(at::kCPU, before);
  for (const at::IValue& product : products) {
    EXPECT_EQ(product.toTensor().scalar_type(), at::kHalf);
  }
}

TEST_F(Broadcast, ReachesWorkersOutsideOfDebugLimitInterpreters) {
  manager_.debugLimitInterpreters(1);
  object().callOnAll({"set_mark", 5});
  manager_.debugLimitInterpreters(3);
  EXPECT_EQ(numbers(object().callOnAll({"get_mark"})), (std::vector<int64_t>{5, 5, 5}));
}

TEST_F(Broadcast, WaitsForBusyWorkers) {
  const Gate gate;
  std::thread busy([&] { subject_.ask("wait_at", gate.arguments()); });
  const pid_t waiting = gate.arrival();
  std::atomic<bool> ended{false};
  std::thread broadcast([&] {
    EXPECT_EQ(numbers(object().callOnAll({"pid"})), processes());
    ended = true;
  });
  EXPECT_GT(waiting, 0);
  EXPECT_FALSE(ended);
  gate.open();
  broadcast.join();
  busy.join();
}

TEST_F(Broadcast, ThrowsAPythonErrorWhenAllHaveEnded) {
  const std::string log = newFile("failing-parts");
  try {
    object().callOnAll({"fail_in_slot", 0, log});
    FAIL() << "no error";
  } catch (const RemoteError& error) {
    EXPECT_EQ(error.message(), "in slot 0");
  }
  EXPECT_EQ(linesOf(log), 3);
  EXPECT_THROW(manager_.callOnAll("isopool_no_such_module", "x"), RemoteError);
  EXPECT_THROW(object().callOnAll({"result_of_kind", "generator"}), Error);
}

TEST_F(Broadcast, ThrowsWorkerLostWhenTheOtherCallsHaveEnded) {
  object().callOnAll({"set_mark", 5});
  const std::string log = newFile("dying-parts");
  const pid_t victim = processOf(1);
  try {
    object().callOnAll({"die_in_slot", 1, log});
    FAIL() << "no worker was lost";
  } catch (const WorkerLost& lost) {
    EXPECT_EQ(lost.processId(), victim);
    EXPECT_EQ(lost.signal(), SIGKILL);
    EXPECT_TRUE(lost.started());
  }
  EXPECT_EQ(linesOf(log), 3);
  EXPECT_EQ(numbers(object().callOnAll({"get_mark"})), (std::vector<int64_t>{5, 0, 5}))
      << "a replacement has not seen earlier broadcasts";
}

TEST_F(Broadcast, OfAGlobalThrowsWorkerLostIfItKillsItsWorker) {
  try {
    manager_.callOnAll("os", "_exit", {3});
    FAIL() << "no worker was lost";
  } catch (const WorkerLost& lost) {
    EXPECT_EQ(lost.exitCode(), 3);
    EXPECT_TRUE(lost.started());
  }
  const auto replacements = numbers(manager_.callOnAll("os", "getpid"));
  EXPECT_EQ(replacements, processes());
}

TEST_F(Broadcast, RunsOnTheReplacementOfADeadWorker) {
  object().callOnAll({"pid"});
  for (size_t slot = 0; slot < 3; ++slot) {
    const pid_t victim = processOf(slot);
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    const auto answers =
        numbers(slot == 1 ? manager_.callOnAll("os", "getpid") : object().callOnAll({"pid"}));
    EXPECT_NE(answers[slot], victim);
    EXPECT_EQ(answers, processes());
  }
}

TEST_F(Broadcast, RunsAgainOnReplacementsIfItIsIdempotent) {
  CallOptions twice;
  twice.idempotent = true;
  const auto answers = numbers(object().callOnAll({"die_once", newFile("once")}, {}, twice));
  EXPECT_EQ(answers, processes());
  EXPECT_GE(manager_.callsRerun(), 1u);
}

TEST_F(Broadcast, KeepsADeadlineOnEveryWorker) {
  CallOptions soon;
  soon.deadline = milliseconds(50);
  EXPECT_THROW(object().callOnAll({"work", 10'000}, {}, soon), DeadlineExceeded);
  EXPECT_EQ(numbers(object().callOnAll({"slot"})), (std::vector<int64_t>{0, 1, 2}));
}

TEST_F(Broadcast, IsMadeByManyThreadsAtOnce) {
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        if (numbers(object().callOnAll({"slot"})) == std::vector<int64_t>{0, 1, 2}) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 40);
}

TEST(BroadcastOfNothing, IsRefused) {
  EXPECT_THROW(ReplicatedObj().callOnAll({}), Error);
  sharedManager();
  auto manager = std::make_unique<InterpreterManager>(1);
  const Subject subject(*manager);
  manager.reset();
  EXPECT_THROW(subject.object().callOnAll({"pid"}), Error);
}

}  // namespace
}  // namespace isopool::tests
