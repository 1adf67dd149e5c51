// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>

#include <fstream>
#include <future>
#include <iterator>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

// By how much a deadline may be exceeded on a busy machine.
constexpr milliseconds kSlack(300);

CallOptions within(std::chrono::nanoseconds time) {
  CallOptions options;
  options.deadline = time;
  return options;
}

struct Overdue {
  bool thrown = false;
  bool started = false;
  std::string text;
  milliseconds took{};
};

Overdue overdue(const Subject& subject, const std::string& method,
                std::vector<at::IValue> arguments, milliseconds deadline) {
  Overdue result;
  const auto began = Clock::now();
  try {
    subject.ask(method, std::move(arguments), within(deadline));
  } catch (const DeadlineExceeded& error) {
    result = {true, error.started(), error.what(), {}};
  }
  result.took = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
  return result;
}

class Deadline : public ::testing::Test {
 protected:
  Deadline() { sharedManager(); }

  pid_t process() { return manager_.allInstances()[0].processId().value_or(-1); }
  /// Occupies the worker with a step until the gate opens. The pool does not count steps as calls.
  std::future<void> occupy(const Gate& gate) {
    return std::async(std::launch::async, [this, arguments = gate.arguments()] {
      InterpreterSession session = subject_.object().acquireSession();
      session.self({at::IValue("wait_at"), arguments[0], arguments[1]});
    });
  }

  InterpreterManager manager_{1};
  Subject subject_{manager_};
};

TEST_F(Deadline, ThatHasPassedAllocatesNoMemoryForArguments) {
  const at::Tensor large = at::ones({int64_t{64} << 20});
  const uint64_t before = manager_.statistics().inputBytes;
  for (const bool passed : {true, false}) {
    const Overdue result =
        overdue(subject_, "identity", {large}, milliseconds(passed ? 0 : 60'000));
    EXPECT_EQ(result.thrown, passed);
    EXPECT_EQ(manager_.statistics().inputBytes > before, !passed);
  }
}

TEST_F(Deadline, OfAProgramThatRanThroughoutKillsTheWorkerAndSaysSo) {
  for (int i = 0; i < 10; ++i) {
    subject_.ask("pid", {});  // the next worker serves
    const Gate gate;
    const Overdue result = overdue(subject_, "wait_at", gate.arguments(), milliseconds(50));
    EXPECT_TRUE(result.started);
    EXPECT_TRUE(result.text.find("the worker was killed") != std::string::npos ||
                result.took > milliseconds(50) + kSlack)
        << result.text;
  }
}

TEST_F(Deadline, ThatIsFarAwayChangesNothing) {
  EXPECT_EQ(subject_.ask("pid", {}, within(milliseconds(10'000))).toInt(), process());
}

// A clock's time plus such a duration overflows: the deadline would be in the past.
TEST_F(Deadline, OfUnreachableLengthIsIgnored) {
  const CallOptions unlimited = within(std::chrono::nanoseconds::max());
  EXPECT_EQ(subject_.ask("pid", {}, unlimited).toInt(), process());
  const PendingCall call = subject_.object().callAsync({"pid"}, {}, unlimited);
  EXPECT_TRUE(call.wait_for(std::chrono::nanoseconds::max()));
  EXPECT_EQ(call.get().toInt(), process());
  ResultStream stream = subject_.object().stream({"pids", 1}, {}, unlimited);
  EXPECT_EQ(stream.next()->toInt(), process());
}

TEST_F(Deadline, OfARunningCallEndsItAndItsWorker) {
  const pid_t victim = process();
  const Gate gate;
  const Overdue result = overdue(subject_, "wait_at", gate.arguments(), milliseconds(200));
  EXPECT_TRUE(result.thrown);
  EXPECT_TRUE(result.started);
  EXPECT_GE(result.took, milliseconds(200));
  EXPECT_LT(result.took, milliseconds(200) + kSlack);
  EXPECT_NE(result.text.find(std::to_string(victim)), std::string::npos) << result.text;
  EXPECT_TRUE(waitUntilDead(victim, kPatience));
  EXPECT_NE(subject_.number("pid"), victim);
  EXPECT_TRUE(waitUntil([&] { return manager_.workersReplaced() == 1; }));
}

TEST_F(Deadline, HoldsIfTheWorkerIsStopped) {
  const pid_t victim = process();
  ASSERT_EQ(::kill(victim, SIGSTOP), 0);
  const Overdue result = overdue(subject_, "pid", {}, milliseconds(200));
  EXPECT_TRUE(result.thrown);
  EXPECT_LT(result.took, milliseconds(200) + kSlack);
  EXPECT_FALSE(result.started) << "a stopped worker starts nothing";
  ASSERT_EQ(::kill(victim, SIGCONT), 0);
  EXPECT_EQ(subject_.number("pid"), victim);
}

TEST_F(Deadline, KillsAWorkerThatIsStoppedDuringACall) {
  const pid_t victim = process();
  const Gate gate;
  auto call = std::async(std::launch::async, [&] {
    return overdue(subject_, "wait_at", gate.arguments(), milliseconds(500));
  });
  ASSERT_EQ(gate.arrival(), victim);
  ASSERT_EQ(::kill(victim, SIGSTOP), 0);
  gate.open();
  const Overdue result = call.get();
  EXPECT_TRUE(result.thrown);
  EXPECT_TRUE(result.started);
  EXPECT_TRUE(waitUntilDead(victim, kPatience));
  EXPECT_NE(subject_.number("pid"), victim);
}

TEST_F(Deadline, OfAWaitingCallWithdrawsItAndKillsNoWorker) {
  const pid_t worker = process();
  const Gate gate;
  auto running =
      std::async(std::launch::async, [&] { return subject_.number("wait_at", gate.arguments()); });
  ASSERT_EQ(gate.arrival(), worker);
  const std::string log = testFolder() / "withdrawn";
  std::vector<std::future<Overdue>> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] {
      return overdue(subject_, "log", {log, "it ran"}, milliseconds(200));
    }));
  }
  for (auto& each : waiting) {
    const Overdue result = each.get();
    EXPECT_TRUE(result.thrown);
    EXPECT_FALSE(result.started);
    EXPECT_LT(result.took, milliseconds(200) + kSlack);
  }
  gate.open();
  EXPECT_EQ(running.get(), worker);
  EXPECT_EQ(subject_.number("pid"), worker);
  EXPECT_FALSE(std::filesystem::exists(log));
  EXPECT_EQ(manager_.workersReplaced(), 0u);
}

TEST_F(Deadline, OfAPublishedCallWithdrawsItAndKillsNoWorker) {
  const Gate gate;
  auto step = occupy(gate);
  const pid_t worker = gate.arrival();
  at::Tensor x = empty({1000}).fill_(1);
  const Overdue result = overdue(subject_, "add_in_place", {x}, milliseconds(200));
  EXPECT_TRUE(result.thrown);
  EXPECT_FALSE(result.started);
  gate.open();
  step.get();
  EXPECT_EQ(subject_.number("pid"), worker);
  EXPECT_TRUE(x.eq(1).all().item<bool>()) << "it ran after all";
  EXPECT_EQ(manager_.workersReplaced(), 0u);
}

TEST_F(Deadline, InThePastStartsNoCall) {
  const std::string log = testFolder() / "too-late";
  const Overdue result = overdue(subject_, "log", {log, "it ran"}, milliseconds(-1));
  EXPECT_TRUE(result.thrown);
  EXPECT_FALSE(result.started);
  EXPECT_GT(subject_.number("pid"), 0);
  EXPECT_FALSE(std::filesystem::exists(log));
}

TEST_F(Deadline, OfManyCallsAtOnceLeavesAWorkingPool) {
  for (int round = 0; round < 3; ++round) {
    const Gate gate;
    std::vector<std::future<Overdue>> calls;
    for (int i = 0; i < 8; ++i) {
      calls.push_back(std::async(std::launch::async, [&] {
        return overdue(subject_, "wait_at", gate.arguments(), milliseconds(150));
      }));
    }
    for (auto& each : calls) EXPECT_TRUE(each.get().thrown);
    EXPECT_GT(subject_.number("pid"), 0);
  }
}

TEST_F(Deadline, MoreWithdrawnCallsThanARingHoldsLeaveAWorkingPool) {
  const Gate gate;
  auto step = occupy(gate);
  const pid_t worker = gate.arrival();
  std::vector<std::future<Overdue>> calls;
  for (int i = 0; i < 100; ++i) {
    calls.push_back(std::async(std::launch::async,
                               [&] { return overdue(subject_, "pid", {}, milliseconds(100)); }));
  }
  for (auto& each : calls) {
    const Overdue result = each.get();
    EXPECT_TRUE(result.thrown);
    EXPECT_FALSE(result.started);
  }
  gate.open();
  step.get();
  EXPECT_EQ(subject_.number("pid"), worker);
}

TEST(DeadlineLog, NamesWorkerCauseAndReplacement) {
  testing::internal::CaptureStderr();
  pid_t victim = 0;
  {
    OwnPool pool(1, {"ISOPOOL_LOG=info"});
    victim = pool.processOf(0);
    const Gate gate;
    EXPECT_TRUE(overdue(pool.subject(), "wait_at", gate.arguments(), milliseconds(200)).started);
    EXPECT_NE(pool.subject().number("pid"), victim);
    // The line of a closed pool would name no replacement.
    EXPECT_TRUE(waitUntil([] {
      std::ifstream captured("/proc/self/fd/2");
      const std::string text(std::istreambuf_iterator<char>(captured), {});
      return text.find("died: SIGKILL") != std::string::npos;
    }));
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("worker 0 (pid " + std::to_string(victim) +
                     ") of pool 1 died: SIGKILL (a call was past its deadline)"),
            std::string::npos)
      << log;
  EXPECT_NE(log.find("; replaced by pid "), std::string::npos) << log;
  EXPECT_EQ(log.find("killed from outside"), std::string::npos) << log;
}

}  // namespace
}  // namespace isopool::tests
