// SPDX-License-Identifier: BSD-3-Clause
#include "base/log/line_rate.h"

#include <gtest/gtest.h>

namespace isopool::base {
namespace {

using std::chrono::milliseconds;

TEST(LineRate, LeavesOutAllButTenInARowAndThenOneASecondAndCountsThem) {
  LineRate rate;
  LineRate::TimePoint now(std::chrono::hours(1));
  int logged = 0;
  uint64_t counted = 0;
  for (int i = 0; i < 5000; ++i, now += milliseconds(1)) {
    const auto suffix = rate.next(now);
    if (!suffix) continue;
    ++logged;
    if (!suffix->empty()) counted += std::stoull(suffix->substr(2));
  }
  EXPECT_EQ(logged, 10 + 4);
  now += milliseconds(1000);
  counted += std::stoull(rate.next(now)->substr(2));
  EXPECT_EQ(logged + 1 + counted, 5001u);
}

TEST(LineRate, LeavesOutNothingAfterTenSecondsWithoutALine) {
  LineRate rate;
  LineRate::TimePoint now(std::chrono::hours(1));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(rate.next(now), "");
  EXPECT_EQ(rate.next(now), std::nullopt);
  now += std::chrono::seconds(10);
  EXPECT_EQ(rate.next(now), " (1 lines like this one were left out before)");
  for (int i = 0; i < 9; ++i) EXPECT_EQ(rate.next(now), "");
  EXPECT_EQ(rate.next(now), std::nullopt);
}

}  // namespace
}  // namespace isopool::base
