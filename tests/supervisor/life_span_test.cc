// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/life_span.h"

#include <gtest/gtest.h>

#include <set>

namespace isopool::tests {
namespace {

using supervisor::LifeSpan;
using supervisor::Recycling;
using Milliseconds = base::Milliseconds;

constexpr uint64_t kMiB = 1 << 20;

uint64_t notCalled() {
  ADD_FAILURE() << "the memory is not needed";
  return 0;
}

std::minstd_rand& random() {
  static std::minstd_rand engine(1);
  return engine;
}

LifeSpan lifeOf(Recycling recycling) {
  recycling.jitterPercent = 0;
  return {recycling, random()};
}

TEST(LifeSpan, WithoutALimitIsNeverOver) {
  LifeSpan life;
  EXPECT_EQ(life.whyOver(UINT64_MAX, Milliseconds::max(), notCalled), "");
}

TEST(LifeSpan, IsOverAtItsLastCall) {
  LifeSpan life = lifeOf({.calls = 10});
  EXPECT_EQ(life.whyOver(9, Milliseconds::max(), notCalled), "");
  EXPECT_EQ(life.whyOver(10, Milliseconds(0), notCalled), "10 calls (ISOPOOL_RECYCLE_CALLS)");
}

TEST(LifeSpan, IsOverAtItsAge) {
  LifeSpan life = lifeOf({.age = Milliseconds(3000)});
  EXPECT_EQ(life.whyOver(1, Milliseconds(2999), notCalled), "");
  EXPECT_EQ(life.whyOver(0, Milliseconds(3000), notCalled), "3 s old (ISOPOOL_RECYCLE_AGE)");
}

TEST(LifeSpan, CountsMemoryFromTheFirstCall) {
  LifeSpan life = lifeOf({.memoryGrowth = 5 * kMiB});
  EXPECT_EQ(life.whyOver(0, Milliseconds(0), notCalled), "") << "a model may still be loaded";
  EXPECT_EQ(life.whyOver(1, Milliseconds(0), [] { return 100 * kMiB; }), "");
  EXPECT_EQ(life.whyOver(2, Milliseconds(0), [] { return 90 * kMiB; }), "");
  EXPECT_EQ(life.whyOver(3, Milliseconds(0), [] { return 105 * kMiB - 1; }), "");
  EXPECT_EQ(life.whyOver(4, Milliseconds(0), [] { return 105 * kMiB; }),
            "its memory grew by 5 MiB (ISOPOOL_RECYCLE_MEMORY_GROWTH)");
}

TEST(LifeSpan, VariesBetweenWorkersWithinItsJitter) {
  std::set<uint64_t> lengths;
  for (int i = 0; i < 100; ++i) {
    LifeSpan life({.calls = 1000, .jitterPercent = 10}, random());
    uint64_t calls = 899;
    while (life.whyOver(calls, Milliseconds(0), notCalled).empty() && calls <= 1100) ++calls;
    lengths.insert(calls);
  }
  EXPECT_GE(*lengths.begin(), 900u);
  EXPECT_LE(*lengths.rbegin(), 1100u);
  EXPECT_GT(lengths.size(), 20u);
}

}  // namespace
}  // namespace isopool::tests
