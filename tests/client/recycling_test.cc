// SPDX-License-Identifier: BSD-3-Clause
// Private pools that replace workers which still work (ISOPOOL_RECYCLE_*, ISOPOOL_WORKER_MEMORY).
#include <memory>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A pool of one worker whose model keeps memory in each call.
class LeakingPool : public OwnPool {
 public:
  explicit LeakingPool(const std::vector<std::string>& variables) : OwnPool(1, variables) {}

  int64_t leak(int64_t bytes) { return subject().number("leak", {bytes}); }
  void leakTensor(int64_t bytes) { subject().ask("make_and_hide", {bytes / 4}); }
  uint64_t replaced() { return manager().workersReplaced(); }
};

TEST(Recycling, ReplacesWorkersOfAModelThatLeaksAndNoCallFails) {
  LeakingPool pool({"ISOPOOL_RECYCLE_MEMORY_GROWTH=8MiB"});
  ASSERT_TRUE(waitUntil([&] {
    EXPECT_NO_THROW(pool.leak(kMiB));
    return pool.replaced() >= 2;
  }));
  EXPECT_GE(pool.manager().statistics().workers.at(0).restarts, 2u);
  EXPECT_EQ(pool.manager().statistics().workers.at(0).lastDeath, "");
}

// Tensors that a call makes are in shared memory, also if the model keeps them.
TEST(Recycling, ReplacesWorkersOfAModelThatLeaksTensors) {
  LeakingPool pool({"ISOPOOL_RECYCLE_MEMORY_GROWTH=8MiB"});
  EXPECT_TRUE(waitUntil([&] {
    EXPECT_NO_THROW(pool.leakTensor(kMiB));
    return pool.replaced() >= 2;
  }));
}

TEST(Recycling, WithoutSparesReplacesWorkersAndNoCallFails) {
  LeakingPool pool({"ISOPOOL_RECYCLE_CALLS=50", "ISOPOOL_SPARES=0"});
  EXPECT_TRUE(waitUntil([&] {
    EXPECT_NO_THROW(pool.leak(1));
    return pool.replaced() >= 2;
  }));
}

TEST(Recycling, LetsASessionOfAReplacedWorkerEnd) {
  LeakingPool pool({"ISOPOOL_RECYCLE_CALLS=50"});
  auto session = std::make_unique<InterpreterSession>(pool.manager().acquireOne());
  const auto sessionProcess = [&] {
    return session->global("os", "getpid")(at::ArrayRef<at::IValue>{}).toIValue().toInt();
  };
  const int64_t old = sessionProcess();
  ASSERT_TRUE(waitUntil([&] { return pool.subject().number("pid") != old; }));
  EXPECT_EQ(sessionProcess(), old);
  session.reset();
  EXPECT_TRUE(waitUntilDead(static_cast<pid_t>(old), milliseconds(5000)));
}

TEST(Recycling, ReplacesAWorkerBeforeItsMemoryCapIsUsedUp) {
  LeakingPool pool({"ISOPOOL_WORKER_MEMORY=256MiB"});
  pool.leak(230 * kMiB);
  EXPECT_TRUE(waitUntil([&] {
    EXPECT_NO_THROW(pool.leak(0));
    return pool.replaced() == 1;
  }));
  EXPECT_EQ(pool.leak(1), 1) << "the new worker begins with nothing";
}

TEST(Recycling, ReplacesAWorkerInWhichACallRanOutOfMemory) {
  LeakingPool pool({"ISOPOOL_WORKER_MEMORY=256MiB"});
  pool.leak(180 * kMiB);
  EXPECT_THROW(pool.leak(100 * kMiB), RemoteError);
  EXPECT_TRUE(waitUntil([&] { return pool.replaced() == 1; }));
  EXPECT_EQ(pool.leak(100 * kMiB), 100 * kMiB);
}

TEST(Recycling, KeepsAWorkerInWhichOneCallAskedForTooMuch) {
  LeakingPool pool({"ISOPOOL_WORKER_MEMORY=256MiB", "ISOPOOL_RECYCLE_CALLS=20"});
  const pid_t worker = pool.processOf(0);
  for (int i = 0; i < 5; ++i) EXPECT_THROW(pool.leak(1000 * kMiB), RemoteError);
  EXPECT_EQ(pool.processOf(0), worker);
  // The next look replaces it for its calls, so it has looked at the memory.
  EXPECT_TRUE(waitUntil([&] {
    pool.leak(0);
    return pool.replaced() == 1;
  }));
}

}  // namespace
}  // namespace isopool::tests
