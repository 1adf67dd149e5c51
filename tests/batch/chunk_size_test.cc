// SPDX-License-Identifier: BSD-3-Clause
#include "batch/plan/chunk_size.h"

#include <gtest/gtest.h>

namespace isopool::batch {
namespace {

TEST(ChunkSize, GivesEachWorkerSeveralChunks) {
  EXPECT_EQ(chunkItemsFor(3200, 2, 1), 100u);
  EXPECT_EQ(chunkItemsFor(3200, 0, 1), 200u) << "a pool without workers yet counts as one worker";
}

TEST(ChunkSize, IsAtLeastOneItemAndAtMostFiveThousand) {
  EXPECT_EQ(chunkItemsFor(0, 4, 1), 1u);
  EXPECT_EQ(chunkItemsFor(3, 4, 1), 1u);
  EXPECT_EQ(chunkItemsFor(uint64_t{1} << 40, 4, 1), 5000u);
}

TEST(ChunkSize, IsAMultipleOfTheItemsOfACall) {
  EXPECT_EQ(chunkItemsFor(3200, 2, 32), 128u);
  EXPECT_EQ(chunkItemsFor(3, 4, 32), 32u);
  EXPECT_EQ(chunkItemsFor(uint64_t{1} << 40, 1, 7000), 7000u);
  EXPECT_EQ(chunkItemsFor(uint64_t{1} << 40, 1, UINT32_MAX), UINT32_MAX);
}

}  // namespace
}  // namespace isopool::batch
