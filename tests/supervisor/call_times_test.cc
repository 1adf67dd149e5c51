// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/call_times.h"

#include <gtest/gtest.h>

namespace isopool::supervisor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr base::Epoch kWorker{1};

class CallTime : public ::testing::Test {
 protected:
  /// The next round; the last one was `ago` before. The worker runs this call for this time.
  milliseconds round(milliseconds ago, uint64_t sequence, milliseconds byClock) {
    now_ += ago;
    times_.look(now_);
    return std::chrono::duration_cast<milliseconds>(times_.ran(kWorker, 1, sequence, byClock));
  }

  CallTimes times_{milliseconds(100)};
  base::TimePoint now_{std::chrono::hours(1)};
};

TEST_F(CallTime, IsTheClocksWhileThisProcessRuns) {
  EXPECT_EQ(round(milliseconds(0), 1, milliseconds(30)), milliseconds(30));
  EXPECT_EQ(round(milliseconds(100), 1, milliseconds(130)), milliseconds(130));
  EXPECT_EQ(round(milliseconds(100), 2, milliseconds(60)), milliseconds(60));
}

TEST_F(CallTime, DoesNotContainAStopOfThisProcess) {
  round(milliseconds(0), 1, milliseconds(30));
  EXPECT_EQ(round(seconds(10), 1, seconds(10) + milliseconds(30)), milliseconds(30));
  // The interval after the stop does not count either.
  EXPECT_EQ(round(milliseconds(100), 1, seconds(10) + milliseconds(130)), milliseconds(30));
  EXPECT_EQ(round(milliseconds(100), 1, seconds(10) + milliseconds(230)), milliseconds(130));
}

TEST_F(CallTime, OfACallThatBeganInTheRoundOfAStopBeginsWithZero) {
  round(milliseconds(0), 1, milliseconds(30));
  EXPECT_EQ(round(seconds(10), 2, seconds(10)), milliseconds(0));
  round(milliseconds(100), 2, seconds(10) + milliseconds(100));
  EXPECT_EQ(round(milliseconds(100), 2, seconds(10) + milliseconds(200)), milliseconds(100));
}

TEST_F(CallTime, OfALaterCallIsNotShortenedByAnEarlierStop) {
  round(milliseconds(0), 1, milliseconds(30));
  round(seconds(10), 1, seconds(10));
  round(milliseconds(100), 1, seconds(10));
  EXPECT_EQ(round(milliseconds(100), 2, milliseconds(80)), milliseconds(80));
  EXPECT_EQ(round(milliseconds(100), 2, milliseconds(180)), milliseconds(180));
}

}  // namespace
}  // namespace isopool::supervisor
