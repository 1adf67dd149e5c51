// SPDX-License-Identifier: BSD-3-Clause
// Of the threads that wait for answers of a worker, one (the leader) watches the ring for all. The
// test plays the worker.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/harness.h"
#include "tests/client/played_worker.h"

namespace isopool::tests {
namespace {

using client::Clock;
using std::chrono::microseconds;

// A thread that is not woken looks at the ring by itself after 100 ms.
constexpr milliseconds kWoken(50);

/// Threads lead one after the other, each until its deadline. A deadline passes about when the
/// thread is woken in order to lead. The last thread has no deadline; returns how long after the
/// worker's answer this thread receives it.
Clock::duration lastOnesAnswer() {
  constexpr int kLeaving = 8;
  PlayedWorker worker;
  std::vector<std::thread> threads;
  std::atomic<uint32_t> unsent{0};  // calls whose deadline passed before, on a loaded machine
  const auto published = [&] {
    EXPECT_TRUE(waitUntil([&] { return worker.callsPublished() + unsent == threads.size(); }));
  };
  const Clock::time_point first = Clock::now() + milliseconds(30);
  for (int i = 0; i < kLeaving; ++i) {
    threads.emplace_back([&, i] {
      const client::Answer answer = worker.call(first + i * microseconds(40));
      EXPECT_EQ(answer.outcome(), client::RequestOutcome::kWithdrawn);
      if (answer.sequence() == 0) ++unsent;
    });
    published();
  }
  Clock::time_point answered;
  threads.emplace_back([&] {
    EXPECT_TRUE(worker.call().take().isNone());
    answered = Clock::now();
  });
  published();
  for (int i = 0; i < kLeaving; ++i) threads[i].join();
  const auto answer = Clock::now();
  worker.answerNothing(worker.callsPublished());
  threads.back().join();
  return answered - answer;
}

TEST(Lead, PassesToTheNextThreadAtTheLeadersDeadline) {
  constexpr int kRounds = 40;
  int late = 0;
  for (int round = 0; round < kRounds; ++round) late += lastOnesAnswer() > kWoken ? 1 : 0;
  // On a loaded machine an answer may also be late for other reasons, but rarely.
  EXPECT_LE(late, kRounds / 10) << "of " << kRounds << " answers that no thread watched for";
}

/// Makes calls that no answer follows, until each slot of the ring has one whose thread has left.
void fillWithAbandonedCalls(PlayedWorker& worker) {
  while (worker.callsPublished() < ipc::kRingSlots) {
    const client::Answer answer = worker.call(Clock::now() + milliseconds(10));
    EXPECT_EQ(answer.outcome(), client::RequestOutcome::kWithdrawn);
  }
}

// Otherwise calls without a deadline would wait for a free slot without limit.
TEST(Lead, IsNotNeededToFindThatTheRingIsInconsistent) {
  PlayedWorker worker;
  fillWithAbandonedCalls(worker);
  EXPECT_EQ(worker.killed(), "");
  constexpr uint64_t kNoCalls = 999;
  worker.answerNothing(kNoCalls);
  // No slot is free, so this call is not published and its thread never leads.
  const client::Answer answer = worker.call(Clock::now() + milliseconds(500));
  EXPECT_EQ(answer.sequence(), 0u);
  EXPECT_NE(worker.killed().find("its completion ring is inconsistent"), std::string::npos)
      << worker.killed();
}

}  // namespace
}  // namespace isopool::tests
