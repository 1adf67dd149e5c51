// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

constexpr size_t kThreads = 8;

/// One thread of a service in the style of torch::deploy's users: it has its own interpreter, holds
/// a session on it, calls the model through this session, and collects garbage now and then.
class PinnedCaller {
 public:
  PinnedCaller(InterpreterManager& manager, const ReplicatedObj& model, size_t index)
      : interpreter_(manager.allInstances()[index]), model_(model) {}

  /// Serves until `stop` is true. If its worker is lost, it only needs a new session.
  void run(const std::atomic<bool>& stop) {
    while (!stop) {
      try {
        const InterpreterSession session = model_.acquireSession(&interpreter_);
        serve(session, stop);
      } catch (const WorkerLost&) {
        ++lost;
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
        return;
      }
    }
  }

  std::atomic<int> answered{0};
  std::atomic<int> wrong{0};
  std::atomic<int> lost{0};

 private:
  void serve(const InterpreterSession& session, const std::atomic<bool>& stop) {
    const at::Tensor input = empty({16});
    while (!stop) {
      const int number = answered;
      input.fill_(number);
      const at::Tensor result =
          session.self.attr("__call__")({at::IValue("add_one"), input}).toIValue().toTensor();
      if (!result.eq(number + 1).all().item<bool>()) ++wrong;
      if (number % 20 == 0) {
        InterpreterSession other = interpreter_.acquireSession();
        other.global("gc", "collect")(at::ArrayRef<Obj>());
      }
      ++answered;
    }
  }

  const Interpreter& interpreter_;
  const ReplicatedObj& model_;
};

TEST(PinnedSessions, OfEightThreadsSurviveKillsOfTheirWorkersAndAnswerRight) {
  OwnPool pool(kThreads);
  const ReplicatedObj& model = pool.subject().object();
  std::array<std::unique_ptr<PinnedCaller>, kThreads> callers;
  std::array<std::thread, kThreads> threads;
  std::atomic<bool> stop{false};
  for (size_t i = 0; i < kThreads; ++i) {
    callers[i] = std::make_unique<PinnedCaller>(pool.manager(), model, i);
    threads[i] = std::thread([&stop, caller = callers[i].get()] { caller->run(stop); });
  }
  // Kills each worker in turn while all threads serve. It must serve again before the next kill.
  for (size_t round = 0; round < 2 * kThreads; ++round) {
    PinnedCaller& victim = *callers[round % kThreads];
    const int before = victim.answered;
    EXPECT_TRUE(waitUntil([&] { return victim.answered > before; })) << "before the kill";
    const int losses = victim.lost;
    ASSERT_EQ(::kill(pool.processOf(round % kThreads), SIGKILL), 0);
    EXPECT_TRUE(waitUntil([&] { return victim.lost > losses; }));
    const int after = victim.answered;
    EXPECT_TRUE(waitUntil([&] { return victim.answered > after; })) << "after the kill";
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  int lost = 0;
  for (const auto& caller : callers) {
    EXPECT_EQ(caller->wrong, 0);
    EXPECT_GT(caller->lost, 0);
    lost += caller->lost;
  }
  EXPECT_GE(lost, static_cast<int>(2 * kThreads));
  EXPECT_GE(pool.manager().workersReplaced(), 2 * kThreads);
}

}  // namespace
}  // namespace isopool::tests
