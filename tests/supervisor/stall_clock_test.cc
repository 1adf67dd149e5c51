// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/clients/stall_clock.h"

#include <gtest/gtest.h>

namespace isopool::supervisor {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

TEST(StallClock, RunsWhileCallsAreQueuedAndNoneCompletes) {
  const base::TimePoint start{};
  StallClock clock;
  EXPECT_EQ(clock.look(start, 2, 7), seconds(0)) << "nothing is known of the time before";
  EXPECT_EQ(clock.look(start + seconds(15), 2, 7), seconds(15));
  EXPECT_EQ(clock.look(start + seconds(30), 5, 7), seconds(30));
  EXPECT_EQ(clock.look(start + seconds(45), 5, 8), seconds(0)) << "a call has completed";
  EXPECT_EQ(clock.look(start + seconds(60), 5, 8), seconds(15));
  EXPECT_EQ(clock.look(start + seconds(75), 0, 8), seconds(0)) << "none is queued";
  EXPECT_EQ(clock.look(start + seconds(90), 1, 8), seconds(15));
}

TEST(StallClock, KnowsNothingOfTheTimeBeforeItsFirstLook) {
  const base::TimePoint soonAfterTheMachinesStart(minutes(3));
  EXPECT_EQ(StallClock().look(soonAfterTheMachinesStart, 2, 0), seconds(0));
}

TEST(StallClock, BeginsAgainAfterATimeOfWhichItKnowsNothing) {
  const base::TimePoint start{};
  StallClock clock;
  clock.look(start, 1, 7);
  EXPECT_EQ(clock.look(start + minutes(5), 1, 7), minutes(5));
  EXPECT_EQ(clock.look(start + minutes(11), 1, 7), seconds(0));
}

}  // namespace
}  // namespace isopool::supervisor
