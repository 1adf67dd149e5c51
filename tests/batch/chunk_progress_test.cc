// SPDX-License-Identifier: BSD-3-Clause
#include "batch/plan/chunk_progress.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace isopool::batch {

// For messages of googletest.
void PrintTo(const ItemRange& range, std::ostream* out) {
  *out << range.first << " +" << range.count;
}

namespace {

constexpr uint32_t kRetries = 1;

std::optional<ItemRange> range(uint32_t first, uint32_t count) { return ItemRange{first, count}; }

TEST(ChunkProgress, CallsTheItemsInOrderABatchAtATime) {
  ChunkProgress progress(5, 2, kRetries);
  EXPECT_EQ(progress.items(), 5u);
  for (const auto& call : {range(0, 2), range(2, 2), range(4, 1)}) {
    EXPECT_EQ(progress.next(), call);
    EXPECT_EQ(progress.next(), call) << "a question changes nothing";
    progress.succeeded(*call);
  }
  EXPECT_EQ(progress.next(), std::nullopt);
  EXPECT_EQ(progress.done(), 5u);
}

// Below: each row of the table of states and events.

TEST(ChunkProgress, APendingItemIsDoneWhenItsCallSucceeds) {
  ChunkProgress progress(2, 1, kRetries);
  progress.succeeded({0, 1});
  EXPECT_EQ(progress.done(), 1u);
  EXPECT_EQ(progress.attempts(0), 0u);
  EXPECT_EQ(progress.next(), range(1, 1));
}

TEST(ChunkProgress, ACallOfSeveralThatFailsIsCutInTwo) {
  ChunkProgress progress(8, 8, kRetries);
  EXPECT_EQ(progress.failed({0, 8}, {}), std::nullopt);
  EXPECT_EQ(progress.next(), range(0, 4));
  EXPECT_EQ(progress.failed({0, 4}, {}), std::nullopt);
  EXPECT_EQ(progress.next(), range(0, 2));
  progress.succeeded({0, 2});
  EXPECT_EQ(progress.next(), range(2, 2));
  EXPECT_EQ(progress.failed({2, 2}, {}), std::nullopt);
  EXPECT_EQ(progress.next(), range(2, 1));
  progress.succeeded({2, 1});
  EXPECT_EQ(progress.next(), range(3, 1));
  progress.succeeded({3, 1});
  EXPECT_EQ(progress.next(), range(4, 4)) << "the other half stays whole";
  for (uint32_t item = 0; item < 8; ++item) EXPECT_EQ(progress.attempts(item), 0u);
}

TEST(ChunkProgress, AnOddCallIsCutToo) {
  ChunkProgress progress(3, 3, kRetries);
  progress.failed({0, 3}, {});
  EXPECT_EQ(progress.next(), range(0, 1));
  progress.succeeded({0, 1});
  EXPECT_EQ(progress.next(), range(1, 2));
  progress.failed({1, 2}, {});
  EXPECT_EQ(progress.next(), range(1, 1));
}

TEST(ChunkProgress, AnItemThatFailsAloneIsTriedAgainAndThenGivenUp) {
  ChunkProgress progress(2, 1, 2);
  for (uint32_t attempt = 1; attempt <= 2; ++attempt) {
    EXPECT_EQ(progress.next(), range(0, 1));
    EXPECT_EQ(progress.failed({0, 1}, {}), std::nullopt);
    EXPECT_EQ(progress.attempts(0), attempt);
  }
  EXPECT_EQ(progress.failed({0, 1}, {}), 0u);
  EXPECT_EQ(progress.attempts(0), 3u);
  EXPECT_EQ(progress.next(), range(1, 1));
  EXPECT_EQ(progress.done(), 0u);
}

TEST(ChunkProgress, ANamedItemIsCalledAloneAndTheOthersWithoutIt) {
  ChunkProgress progress(6, 6, kRetries);
  EXPECT_EQ(progress.failed({0, 6}, 2), std::nullopt);
  EXPECT_EQ(progress.attempts(2), 1u);
  EXPECT_EQ(progress.next(), range(0, 2));
  progress.succeeded({0, 2});
  EXPECT_EQ(progress.next(), range(2, 1));
  progress.succeeded({2, 1});
  EXPECT_EQ(progress.next(), range(3, 3));
}

TEST(ChunkProgress, ANamedItemIsGivenUpWithoutAnotherTry) {
  ChunkProgress progress(3, 3, 0);
  EXPECT_EQ(progress.failed({0, 3}, 1), 1u);
  progress.succeeded(*progress.next());
  EXPECT_EQ(progress.next(), range(2, 1));
}

TEST(ChunkProgress, AnItemOutsideTheCallIsNoCulprit) {
  ChunkProgress progress(8, 4, 0);
  EXPECT_EQ(progress.failed({0, 4}, 4), std::nullopt);
  EXPECT_EQ(progress.failed({0, 2}, 7), std::nullopt);
  EXPECT_EQ(progress.next(), range(0, 1));
  EXPECT_EQ(progress.attempts(4), 0u);
  EXPECT_EQ(progress.attempts(7), 0u);
}

TEST(ChunkProgress, ACallWhoseWorkerEndedIsMadeByItself) {
  ChunkProgress progress(8, 2, kRetries);
  EXPECT_EQ(progress.next(100), range(0, 8));
  progress.suspect({2, 2});
  EXPECT_EQ(progress.next(100), range(0, 2));
  progress.succeeded({0, 2});
  EXPECT_EQ(progress.next(100), range(2, 2));
  progress.succeeded({2, 2});
  EXPECT_EQ(progress.next(100), range(4, 4));
}

TEST(ChunkProgress, AResultThatANewWorkerHasNotIsComputedAgain) {
  ChunkProgress progress(4, 1, kRetries);
  for (uint32_t item = 0; item < 4; ++item) progress.succeeded({item, 1});
  EXPECT_EQ(progress.next(), std::nullopt);
  progress.opened({{0, 1}, {3, 1}});
  EXPECT_EQ(progress.done(), 2u);
  EXPECT_EQ(progress.next(), range(1, 1));
}

TEST(ChunkProgress, AResultThatANewWorkerHasIsNotComputedAgain) {
  ChunkProgress progress(6, 2, kRetries);
  progress.opened({{0, 3}, {5, 1}});
  EXPECT_EQ(progress.done(), 4u);
  EXPECT_EQ(progress.next(), range(3, 1));
  progress.succeeded({3, 1});
  EXPECT_EQ(progress.next(), range(4, 1));
}

TEST(ChunkProgress, WhatIsLeftOutStaysSo) {
  ChunkProgress progress(4, 4, kRetries);
  progress.leaveOut(1);
  progress.leaveOut(99);
  EXPECT_EQ(progress.next(), range(0, 1));
  progress.opened({{0, 2}});
  EXPECT_EQ(progress.done(), 1u) << "the item was left out since its result was written";
  EXPECT_EQ(progress.next(), range(2, 2));
}

TEST(ChunkProgress, RangesBeyondTheChunkAreIgnored) {
  ChunkProgress progress(3, 1, kRetries);
  progress.opened({{2, UINT32_MAX}, {UINT32_MAX, 1}, {7, 3}});
  EXPECT_EQ(progress.done(), 1u);
}

TEST(ChunkProgress, AfterASuspicionEachItemIsCalledAlone) {
  ChunkProgress progress(4, 4, kRetries);
  progress.suspectAll();
  for (uint32_t item = 0; item < 4; ++item) {
    EXPECT_EQ(progress.next(100), range(item, 1));
    progress.succeeded({item, 1});
  }
}

TEST(ChunkProgress, AStepHasWholeCallsOnly) {
  ChunkProgress progress(11, 3, kRetries);
  EXPECT_EQ(progress.next(2), range(0, 3)) << "at least one call";
  EXPECT_EQ(progress.next(5), range(0, 3));
  EXPECT_EQ(progress.next(6), range(0, 6));
  EXPECT_EQ(progress.next(100), range(0, 11)) << "the last call may be short";
  progress.opened({{7, 1}});
  EXPECT_EQ(progress.next(100), range(0, 6)) << "a call with a gap is none of a step";
  progress.succeeded({0, 6});
  EXPECT_EQ(progress.next(100), range(6, 1));
}

/// A worker and its items: some always fail, some at first; the worker ends now and then.
class SimulatedChunk {
 public:
  explicit SimulatedChunk(uint32_t seed) : random_(seed) {
    items_ = 1 + below(60);
    batch_ = 1 + below(12);
    retries_ = below(3);
    left_.assign(items_, 0);
    for (uint32_t item = 0; item < items_; ++item) {
      if (below(8) == 0) bad_.insert(item);
      if (below(8) == 0) left_[item] = below(retries_ + 1);
    }
  }

  void run() {
    ChunkProgress progress(items_, batch_, retries_);
    if (below(4) == 0) {
      leftOut_ = below(items_);
      progress.leaveOut(*leftOut_);
    }
    int steps = 0;
    while (const auto range = progress.next(below(40))) {
      ASSERT_LT(++steps, 5000);
      ASSERT_GT(range->count, 0u);
      ASSERT_LE(range->first + range->count, items_);
      if (below(6) == 0 && losses_ > 0) {
        lose(progress);
        continue;
      }
      step(progress, *range);
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (uint32_t item = 0; item < items_; ++item) {
      EXPECT_EQ(givenUp_[item], bad_.count(item) == 1 && item != leftOut_ ? 1 : 0) << item;
      EXPECT_EQ(recorded_.count(item), bad_.count(item) == 0 && item != leftOut_ ? 1u : 0u) << item;
    }
    EXPECT_EQ(progress.done(), recorded_.size());
  }

 private:
  uint32_t below(uint32_t limit) {
    return std::uniform_int_distribution<uint32_t>(0, limit - 1)(random_);
  }

  /// A new worker, which does not find all results: a loss of power has damaged the rest.
  void lose(ChunkProgress& progress) {
    --losses_;
    std::vector<ItemRange> found;
    for (auto item = recorded_.begin(); item != recorded_.end();) {
      if (below(3) == 0) {
        item = recorded_.erase(item);
      } else {
        found.push_back({*item++, 1});
      }
    }
    progress.opened(found);
  }

  /// Makes the calls of the step as lane.cc and its worker do.
  void step(ChunkProgress& progress, const ItemRange& range) {
    const uint32_t call = std::min(range.count, batch_);
    for (uint32_t first = range.first; first < range.first + range.count; first += call) {
      const ItemRange one{first, std::min(call, range.first + range.count - first)};
      const auto culprit = culpritOf(one);
      if (!culprit) {
        for (uint32_t item = one.first; item < one.first + one.count; ++item) {
          ASSERT_NE(item, leftOut_);
          ASSERT_EQ(givenUp_[item], 0);
          ASSERT_TRUE(recorded_.insert(item).second) << item << " was computed twice";
        }
        continue;
      }
      if (left_[*culprit] > 0) --left_[*culprit];
      const bool dies = below(2) == 0;
      std::optional<uint32_t> named;
      if (dies) {
        reopen(progress);
        // The first call without results was the one that ran.
        ASSERT_EQ(progress.next()->first, one.first);
      } else {
        progress.succeeded({range.first, one.first - range.first});
        if (below(2) == 0) named = culprit;
      }
      if (const auto item = progress.failed(one, named)) ++givenUp_[*item];
      return;
    }
    progress.succeeded(range);
  }

  void reopen(ChunkProgress& progress) {
    std::vector<ItemRange> found;
    for (const uint32_t item : recorded_) found.push_back({item, 1});
    progress.opened(found);
  }

  std::optional<uint32_t> culpritOf(const ItemRange& call) {
    for (uint32_t item = call.first; item < call.first + call.count; ++item) {
      if (bad_.count(item) == 1 || left_[item] > 0) return item;
    }
    return std::nullopt;
  }

  std::mt19937 random_;
  uint32_t items_ = 0;
  uint32_t batch_ = 0;
  uint32_t retries_ = 0;
  int losses_ = 5;
  std::set<uint32_t> bad_;
  std::vector<uint32_t> left_;  ///< how often the item fails before it succeeds
  std::optional<uint32_t> leftOut_;
  std::set<uint32_t> recorded_;
  std::map<uint32_t, int> givenUp_;
};

TEST(ChunkProgress, SettlesEachItemOnceWhateverFails) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedChunk(seed).run();
    if (HasFailure()) return;
  }
}

TEST(ChunkProgress, GivesUpWhatHasNoOutcome) {
  ChunkProgress progress(3, 3, 1);
  progress.succeeded({0, 1});
  EXPECT_FALSE(progress.giveUp(0));
  EXPECT_TRUE(progress.giveUp(1));
  EXPECT_FALSE(progress.giveUp(1));
  EXPECT_EQ(progress.attempts(1), 1u);
  EXPECT_FALSE(progress.giveUp(3));
  EXPECT_EQ(progress.next(), (ItemRange{2, 1}));
}

}  // namespace
}  // namespace isopool::batch
