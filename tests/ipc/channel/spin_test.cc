// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/spin.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace isopool::ipc {
namespace {

TEST(SpinBudget, SpinsWhileWaitsAreShort) {
  SpinBudget budget;
  EXPECT_EQ(budget.nanoseconds(), kLongestSpin) << "nothing is known yet";
  for (int i = 0; i < 100; ++i) budget.waited(5'000);
  EXPECT_EQ(budget.nanoseconds(), kLongestSpin);
}

TEST(SpinBudget, StopsSpinningWhenWaitsAreLong) {
  SpinBudget budget;
  int waits = 0;
  while (budget.nanoseconds() > 0 && waits < 100) {
    budget.waited(10'000'000);
    ++waits;
  }
  EXPECT_LT(waits, 10);
  budget.waited(INT64_MAX);
  EXPECT_EQ(budget.nanoseconds(), 0);
}

TEST(SpinBudget, SpinsAgainSoonAfterOneVeryLongWait) {
  SpinBudget budget;
  budget.waited(INT64_MAX);
  int waits = 0;
  while (budget.nanoseconds() == 0 && waits < 100) {
    budget.waited(5'000);
    ++waits;
  }
  EXPECT_LT(waits, 10);
}

TEST(SpinUntil, LooksOnceEvenWithoutTime) {
  int looks = 0;
  EXPECT_TRUE(spinUntil([&] { return ++looks == 1; }, 0));
  EXPECT_FALSE(spinUntil([&] { return ++looks == 0; }, 0));
  EXPECT_EQ(looks, 2);
}

TEST(SpinUntil, EndsWhenItIsReadyOrOutOfTime) {
  int looks = 0;
  EXPECT_TRUE(spinUntil([&] { return ++looks == 1000; }, 10'000'000'000));
  EXPECT_EQ(looks, 1000);
  const int64_t begin = monotonicNow();
  EXPECT_FALSE(spinUntil([] { return false; }, 1'000'000));
  EXPECT_GE(monotonicNow() - begin, 1'000'000);
}

TEST(CurrentProcessor, IsOneOfThisMachine) {
  EXPECT_LT(currentProcessor(), static_cast<uint32_t>(::sysconf(_SC_NPROCESSORS_CONF)));
}

}  // namespace
}  // namespace isopool::ipc
