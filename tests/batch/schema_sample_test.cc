// SPDX-License-Identifier: BSD-3-Clause
#include "batch/plan/schema_sample.h"

#include <gtest/gtest.h>

namespace isopool::batch {
namespace {

using Types = std::vector<std::string>;

TEST(SchemaSample, IsTheFirstTheMiddleAndTheLastChunkInWhateverOrderTheyCome) {
  SchemaSample sample({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(sample.order(), (std::vector<int64_t>{0, 3, 5, 1, 2, 4}));
  sample.add(5, "last", 100);
  sample.add(1, "of no account", 100);
  sample.add(0, "first", 100);
  EXPECT_EQ(sample.complete(), std::nullopt);
  sample.add(3, "middle", 100);
  EXPECT_EQ(sample.complete(), (Types{"first", "middle", "last"}));
  sample.add(3, "middle", 100);
  EXPECT_EQ(sample.complete(), (Types{"first", "middle", "last"}));
}

TEST(SchemaSample, OfFewChunksIsAllOfThem) {
  for (const size_t count : {1U, 2U, 3U}) {
    std::vector<int64_t> chunks;
    for (size_t i = 0; i < count; ++i) chunks.push_back(static_cast<int64_t>(10 * i));
    SchemaSample sample(chunks);
    EXPECT_EQ(sample.order().size(), count);
    for (const int64_t chunk : chunks) {
      EXPECT_EQ(sample.complete(), std::nullopt);
      sample.add(chunk, "types", 1);
    }
    EXPECT_EQ(sample.complete()->size(), count);
  }
}

TEST(SchemaSample, GoesOnInOrderUpToAHundredRows) {
  SchemaSample sample({0, 1, 2, 3, 4, 5});
  sample.add(0, "", 0);
  sample.add(3, "middle", 60);
  sample.add(5, "", 0);
  sample.add(2, "second", 40);
  EXPECT_EQ(sample.complete(), std::nullopt);
  sample.add(1, "first", 30);
  EXPECT_EQ(sample.complete(), (Types{"middle", "first", "second"}));
  sample.add(1, "first", 40);
  EXPECT_EQ(sample.complete(), (Types{"middle", "first"}));
}

TEST(SchemaSample, OfSmallChunksIsAllOfThem) {
  SchemaSample sample({0, 1, 2, 3});
  for (const int64_t chunk : {0, 1, 2}) sample.add(chunk, "types", 1);
  EXPECT_EQ(sample.complete(), std::nullopt);
  sample.add(3, "", 0);
  EXPECT_EQ(sample.complete(), (Types{"types", "types", "types"}));
}

TEST(SchemaSample, OfChunksWithoutRowsIsNeverComplete) {
  SchemaSample sample({7});
  sample.add(7, "", 0);
  EXPECT_EQ(sample.complete(), std::nullopt);
  EXPECT_EQ(SchemaSample({}).complete(), std::nullopt);
}

}  // namespace
}  // namespace isopool::batch
