// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/slot_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace isopool::supervisor {
namespace {

using Slots = std::vector<uint32_t>;

TEST(SlotChoice, KeepsWhatIsBalanced) {
  EXPECT_EQ(rebalanced({1, 0}, {0, 1, 2}), (Slots{1, 0}));
  EXPECT_EQ(rebalanced({0, 1, 0}, {1, 0}), (Slots{0, 1, 0}));
  EXPECT_EQ(rebalanced({}, {0}), Slots{});
}

TEST(SlotChoice, GivesNewSlotsTheLastUsesOfThoseThatAreUsedTwice) {
  EXPECT_EQ(rebalanced({0, 0, 0}, {2, 1, 0}), (Slots{0, 1, 2}));
  EXPECT_EQ(rebalanced({0, 1, 0, 1}, {3, 2, 1, 0}), (Slots{0, 1, 2, 3}));
}

TEST(SlotChoice, ReplacesSlotsThatAreGoneByTheLeastUsed) {
  EXPECT_EQ(rebalanced({3}, {1, 0}), (Slots{1}));
  EXPECT_EQ(rebalanced({0, 1, 2, 3}, {0, 1}), (Slots{0, 1, 0, 1}));
  EXPECT_EQ(rebalanced({2, 3}, {0}), (Slots{0, 0}));
}

}  // namespace
}  // namespace isopool::supervisor
