// SPDX-License-Identifier: BSD-3-Clause
// Calls that a sleeping worker has not taken before their deadlines. The test plays the worker.
#include "client/transport/unheard_calls.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/client/harness.h"
#include "tests/client/played_worker.h"

namespace isopool::tests {
namespace {

using client::Clock;
using client::UnheardCalls;
using std::chrono::seconds;

class UnheardCall : public ::testing::Test {
 protected:
  /// Makes a call at this time and withdraws it a millisecond later. True if the worker then counts
  /// as stopped.
  bool stopped(uint64_t request, milliseconds at, const UnheardCalls::Worker& worker) {
    return calls_.tooMany(request, at, worker, at + milliseconds(1));
  }

  UnheardCalls calls_;
};

TEST_F(UnheardCall, MissedForASecondShowsAStoppedWorker) {
  EXPECT_FALSE(stopped(1, milliseconds(0), {.sleeps = true, .taken = 0}));
  EXPECT_FALSE(stopped(2, milliseconds(900), {.sleeps = true, .taken = 0}));
  EXPECT_TRUE(stopped(3, milliseconds(1000), {.sleeps = true, .taken = 0}));
}

TEST_F(UnheardCall, IsIgnoredIfItIsTakenLater) {
  EXPECT_FALSE(stopped(1, milliseconds(0), {.sleeps = true, .taken = 0}));
  EXPECT_FALSE(stopped(2, milliseconds(1200), {.sleeps = true, .taken = 1}));
  EXPECT_FALSE(stopped(3, milliseconds(2400), {.sleeps = true, .taken = 2}));
  EXPECT_TRUE(stopped(4, milliseconds(3400), {.sleeps = true, .taken = 2}));
}

TEST_F(UnheardCall, IsIgnoredIfItIsTakenAtTheSameTime) {
  EXPECT_FALSE(calls_.tooMany(1, seconds(0), {.sleeps = true, .taken = 1}, seconds(5)));
}

TEST_F(UnheardCall, IsIgnoredIfTheWorkerIsAwake) {
  EXPECT_FALSE(stopped(1, milliseconds(0), {.sleeps = true, .taken = 0}));
  EXPECT_FALSE(stopped(2, milliseconds(1200), {.sleeps = false, .taken = 0}));
  EXPECT_FALSE(stopped(3, milliseconds(2400), {.sleeps = true, .taken = 0}));
}

TEST_F(UnheardCall, IsFoundWhereTheCountOfCallsWraps) {
  constexpr uint64_t kWrapped = (uint64_t{1} << 32) + 1;
  EXPECT_FALSE(stopped(kWrapped, milliseconds(0), {.sleeps = true, .taken = 0xffffffff}));
  EXPECT_TRUE(stopped(kWrapped + 1, milliseconds(1000), {.sleeps = true, .taken = 0xffffffff}));
}

// ---- a channel -------------------------------------------------------------------------------

client::Deadline soon() { return Clock::now() + milliseconds(10); }

TEST(IdleWorker, ThatTakesEachCallAfterItsDeadlineIsNotKilled) {
  PlayedWorker worker;
  worker.sleep();
  const auto began = Clock::now();
  // The second call is made when the first one is more than a second old.
  EXPECT_EQ(worker.call(soon()).outcome(), client::RequestOutcome::kWithdrawn);
  worker.take();
  ASSERT_TRUE(waitUntil([&] { return Clock::now() - began > milliseconds(1200); }));
  EXPECT_EQ(worker.call(soon()).outcome(), client::RequestOutcome::kWithdrawn);
  EXPECT_EQ(worker.killed(), "");
}

TEST(IdleWorker, ThatSleepsThroughCallsForASecondIsKilled) {
  PlayedWorker worker;
  worker.sleep();
  EXPECT_TRUE(waitUntil([&] {
    EXPECT_EQ(worker.call(soon()).outcome(), client::RequestOutcome::kWithdrawn);
    return !worker.killed().empty();
  }));
  EXPECT_NE(worker.killed().find("it slept for a second"), std::string::npos) << worker.killed();
}

TEST(IdleWorker, IsNotSentACallWhoseDeadlineHasPassed) {
  PlayedWorker worker;
  EXPECT_EQ(worker.call(Clock::now()).outcome(), client::RequestOutcome::kWithdrawn);
  EXPECT_EQ(worker.callsPublished(), 0u);
}

}  // namespace
}  // namespace isopool::tests
