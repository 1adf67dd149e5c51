// SPDX-License-Identifier: BSD-3-Clause
// One of the threads that wait for answers of a worker looks for all of them. The test plays the
// worker.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "tests/client/harness.h"
#include "tests/client/played_worker.h"

namespace isopool::tests {
namespace {

using client::Clock;
using std::chrono::microseconds;

// A thread that nobody wakes looks after a tenth of a second by itself.
constexpr milliseconds kWoken(50);

/// Threads lead one after the other until their deadlines, which pass in the moment in which they
/// are woken for it. How long after its answer the last one has it, which has no deadline.
Clock::duration lastOnesAnswer() {
  constexpr int kLeaving = 8;
  PlayedWorker worker;
  std::vector<std::thread> threads;
  std::atomic<uint32_t> unsent{0};  // whose deadline passed before, on a machine that is loaded
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

TEST(Lead, OfAThreadWhoseDeadlinePassesIsTakenByTheNext) {
  constexpr int kRounds = 40;
  int late = 0;
  for (int round = 0; round < kRounds; ++round) late += lastOnesAnswer() > kWoken ? 1 : 0;
  // A loaded machine may be late as well, though not as a rule.
  EXPECT_LE(late, kRounds / 10) << "of " << kRounds << " answers that nobody looked for";
}

}  // namespace
}  // namespace isopool::tests
