// SPDX-License-Identifier: BSD-3-Clause
#include "batch/plan/pace.h"

#include <gtest/gtest.h>

namespace isopool::batch {
namespace {

constexpr Pace::Seconds kStep{0.05};

TEST(Pace, BeginsWithOneItemAndGrowsSlowly) {
  Pace pace(kStep);
  EXPECT_EQ(pace.items(), 1u);
  for (const uint32_t items : {4u, 16u, 50u, 50u}) {
    pace.add(pace.items(), Pace::Seconds(0.001) * pace.items());
    EXPECT_EQ(pace.items(), items);
  }
}

TEST(Pace, ShrinksAtOnce) {
  Pace pace(kStep);
  for (int i = 0; i < 10; ++i) pace.add(pace.items(), Pace::Seconds(0.0001) * pace.items());
  EXPECT_EQ(pace.items(), 500u);
  pace.add(500, Pace::Seconds(500));
  EXPECT_EQ(pace.items(), 1u);
}

TEST(Pace, ItemsThatTakeNoTimeAreNotUnlimited) {
  Pace pace(kStep);
  for (int i = 0; i < 100; ++i) pace.add(pace.items(), Pace::Seconds(0));
  EXPECT_EQ(pace.items(), 4096u);
}

}  // namespace
}  // namespace isopool::batch
