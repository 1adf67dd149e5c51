// SPDX-License-Identifier: BSD-3-Clause
#include "batch/plan/failure_limit.h"

#include <gtest/gtest.h>

namespace isopool::batch {
namespace {

TEST(FailureLimit, IsNeverExceededWithoutOne) {
  EXPECT_FALSE((FailureLimit{}.exceeded(UINT64_MAX / 2, 0)));
}

TEST(FailureLimit, ANumberIsTheMostThatMayFail) {
  const FailureLimit limit{3, {}};
  EXPECT_FALSE(limit.exceeded(3, 0));
  EXPECT_TRUE(limit.exceeded(4, 1000));
  EXPECT_TRUE((FailureLimit{0, {}}.exceeded(1, 0)));
}

TEST(FailureLimit, AShareCountsFromAHundredItemsOn) {
  const FailureLimit limit{{}, 0.05};
  EXPECT_FALSE(limit.exceeded(99, 0));
  EXPECT_TRUE(limit.exceeded(100, 0));
  EXPECT_FALSE(limit.exceeded(5, 95)) << "just the share";
  EXPECT_TRUE(limit.exceeded(6, 94));
  EXPECT_FALSE(limit.exceeded(50, 950));
  EXPECT_TRUE(limit.exceeded(51, 949));
}

TEST(FailureLimit, NoneMayFailAndAllMayFail) {
  EXPECT_TRUE((FailureLimit{{}, 0.0}.exceeded(1, 99)));
  EXPECT_FALSE((FailureLimit{{}, 0.0}.exceeded(0, 1000)));
  EXPECT_FALSE((FailureLimit{{}, 1.0}.exceeded(1000, 0)));
}

TEST(FailureLimit, TheFirstOfBothCounts) {
  const FailureLimit limit{10, 0.5};
  EXPECT_TRUE(limit.exceeded(11, 1000));
  EXPECT_FALSE(limit.exceeded(10, 1000));
}

}  // namespace
}  // namespace isopool::batch
