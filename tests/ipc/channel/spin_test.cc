// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/spin.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "testing/one_processor.h"

namespace isopool::ipc {
namespace {

TEST(SpinBudget, SpinsWhileTheOtherSidesWorkIsShort) {
  SpinBudget budget;
  EXPECT_EQ(budget.nanoseconds(), kLongestSpin) << "nothing is known yet";
  for (int i = 0; i < 100; ++i) budget.worked(5'000);
  EXPECT_EQ(budget.nanoseconds(), kLongestSpin);
}

TEST(SpinBudget, DoesNotSpinForWorkThatIsShortButBeginsWithALongWakeUp) {
  SpinBudget budget;
  for (int i = 0; i < 100; ++i) budget.worked(80'000);
  EXPECT_EQ(budget.nanoseconds(), kLongestSpin);
  EXPECT_EQ(budget.nanoseconds(kWakeUp), 0);
  for (int i = 0; i < 100; ++i) budget.worked(1'000);
  EXPECT_EQ(budget.nanoseconds(kWakeUp), kLongestSpin);
}

TEST(SpinBudget, StopsSpinningWhenTheOtherSideWorksLong) {
  SpinBudget budget;
  int waits = 0;
  while (budget.nanoseconds() > 0 && waits < 100) {
    budget.worked(10'000'000);
    ++waits;
  }
  EXPECT_LT(waits, 10);
  budget.worked(INT64_MAX);
  EXPECT_EQ(budget.nanoseconds(), 0);
}

TEST(SpinBudget, SpinsAgainSoonAfterOneVeryLongPieceOfWork) {
  SpinBudget budget;
  budget.worked(INT64_MAX);
  int waits = 0;
  while (budget.nanoseconds() == 0 && waits < 100) {
    budget.worked(5'000);
    ++waits;
  }
  EXPECT_LT(waits, 10);
}

TEST(SpinUntil, LooksOnceEvenWithoutTime) {
  int looks = 0;
  EXPECT_EQ(spinUntil([&] { return ++looks == 1; }, monotonicNow(), 0), 0);
  EXPECT_EQ(spinUntil([&] { return ++looks == 0; }, monotonicNow(), 0), std::nullopt);
  EXPECT_EQ(looks, 2);
}

TEST(SpinUntil, EndsWhenItIsReadyOrOutOfTime) {
  int looks = 0;
  EXPECT_TRUE(spinUntil([&] { return ++looks == 1000; }, monotonicNow(), 10'000'000'000));
  EXPECT_EQ(looks, 1000);
  const int64_t begin = monotonicNow();
  EXPECT_FALSE(spinUntil([] { return false; }, begin, 1'000'000));
  EXPECT_GE(monotonicNow() - begin, 1'000'000);
}

TEST(SpinUntil, TellsHowLongItTookAndNeverMore) {
  const int64_t begin = monotonicNow();
  const int64_t until = begin + 3'000'000;
  const auto spun = spinUntil([&] { return monotonicNow() >= until; }, begin, 10'000'000'000);
  const int64_t took = monotonicNow() - begin;
  ASSERT_TRUE(spun.has_value());
  EXPECT_GT(*spun, 0) << "it read the clock in between";
  EXPECT_LE(*spun, took);
}

TEST(CurrentProcessor, IsOneOfThisMachine) {
  EXPECT_LT(currentProcessor(), static_cast<uint32_t>(::sysconf(_SC_NPROCESSORS_CONF)));
}

TEST(LeaveProcessor, GoesToAnotherOneAndMayRunOnAllAgain) {
  const std::vector<int> processors = tests::usableProcessors();
  if (processors.size() < 2) GTEST_SKIP() << "this process may use one processor only";
  int left = 0;
  // The kernel may move the thread at any time, also back.
  for (int i = 0; i < 1000 && left == 0; ++i) {
    const uint32_t before = currentProcessor();
    leaveProcessor();
    left += currentProcessor() != before ? 1 : 0;
  }
  EXPECT_GT(left, 0);
  EXPECT_EQ(tests::usableProcessors(), processors);
}

TEST(LeaveProcessor, StaysOnTheOnlyOne) {
  const tests::OnOneProcessor here(tests::usableProcessors().front());
  const uint32_t before = currentProcessor();
  leaveProcessor();
  EXPECT_EQ(currentProcessor(), before);
}

}  // namespace
}  // namespace isopool::ipc
