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

const LifeSpan::Memory kNotNeeded{.own = notCalled, .left = notCalled};

LifeSpan::Memory ownMemory(uint64_t bytes) {
  return {.own = [=] { return bytes; }, .left = notCalled};
}

LifeSpan::Memory left(uint64_t bytes) {
  return {.own = notCalled, .left = [=] { return bytes; }};
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
  EXPECT_EQ(life.whyOver(UINT64_MAX, Milliseconds::max(), kNotNeeded), "");
}

TEST(LifeSpan, IsOverAtItsLastCall) {
  LifeSpan life = lifeOf({.calls = 10});
  EXPECT_EQ(life.whyOver(9, Milliseconds::max(), kNotNeeded), "");
  EXPECT_EQ(life.whyOver(10, Milliseconds(0), kNotNeeded), "10 calls (ISOPOOL_RECYCLE_CALLS)");
}

TEST(LifeSpan, IsOverAtItsAge) {
  LifeSpan life = lifeOf({.age = Milliseconds(3000)});
  EXPECT_EQ(life.whyOver(1, Milliseconds(2999), kNotNeeded), "");
  EXPECT_EQ(life.whyOver(0, Milliseconds(3000), kNotNeeded), "3 s old (ISOPOOL_RECYCLE_AGE)");
}

TEST(LifeSpan, CountsMemoryFromTheFirstCall) {
  LifeSpan life = lifeOf({.memoryGrowth = 5 * kMiB});
  EXPECT_EQ(life.whyOver(0, Milliseconds(0), kNotNeeded), "") << "a model may still be loaded";
  EXPECT_EQ(life.whyOver(1, Milliseconds(0), ownMemory(100 * kMiB)), "");
  EXPECT_EQ(life.whyOver(2, Milliseconds(0), ownMemory(90 * kMiB)), "");
  EXPECT_EQ(life.whyOver(3, Milliseconds(0), ownMemory(105 * kMiB - 1)), "");
  EXPECT_EQ(life.whyOver(4, Milliseconds(0), ownMemory(105 * kMiB)),
            "its memory grew by 5 MiB (ISOPOOL_RECYCLE_MEMORY_GROWTH)");
}

TEST(LifeSpan, IsOverWhenAnEighthOfTheMemoryCapIsLeft) {
  LifeSpan life = lifeOf({.memoryCap = 256 * kMiB});
  EXPECT_EQ(life.whyOver(0, Milliseconds(0), kNotNeeded), "") << "a model may still be loaded";
  EXPECT_EQ(life.whyOver(1, Milliseconds(0), left(32 * kMiB)), "");
  EXPECT_EQ(life.whyOver(2, Milliseconds(0), left(32 * kMiB - 1)),
            "31 of its 256 MiB are left (ISOPOOL_WORKER_MEMORY)");
}

TEST(LifeSpan, IsOverWhenHalfOfTheMemoryCapIsUsedAndACallRanOutOfMemory) {
  LifeSpan life = lifeOf({.memoryCap = 256 * kMiB});
  life.memoryRanOut();
  EXPECT_EQ(life.whyOver(1, Milliseconds(0), left(128 * kMiB)), "") << "one call took too much";
  EXPECT_EQ(life.whyOver(2, Milliseconds(0), left(100 * kMiB)),
            "a call ran out of memory, and 100 of its 256 MiB are left (ISOPOOL_WORKER_MEMORY)");
}

TEST(LifeSpan, VariesBetweenWorkersWithinItsJitter) {
  std::set<uint64_t> lengths;
  for (int i = 0; i < 100; ++i) {
    LifeSpan life({.calls = 1000, .jitterPercent = 10}, random());
    uint64_t calls = 899;
    while (life.whyOver(calls, Milliseconds(0), kNotNeeded).empty() && calls <= 1100) ++calls;
    lengths.insert(calls);
  }
  EXPECT_GE(*lengths.begin(), 900u);
  EXPECT_LE(*lengths.rbegin(), 1100u);
  EXPECT_GT(lengths.size(), 20u);
}

TEST(LifeSpan, EndsWhenItIsEnded) {
  LifeSpan life = lifeOf({});
  EXPECT_EQ(life.whyOver(5, Milliseconds(5), kNotNeeded), "");
  life.end("an operator wanted it");
  EXPECT_EQ(life.whyOver(0, Milliseconds(0), kNotNeeded), "an operator wanted it");
}

}  // namespace
}  // namespace isopool::tests
