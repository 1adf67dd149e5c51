// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/memory_watch.h"

#include <gtest/gtest.h>

namespace isopool::supervisor {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

std::string why(uint64_t worker, uint64_t processes, uint32_t count, uint64_t limit = 600) {
  Processes::Tree tree;
  tree.workerBytes = worker * kMebibyte;
  tree.bytes = processes * kMebibyte;
  tree.processes = count;
  tree.limit = limit * kMebibyte;
  return whyTooMuchMemory(tree);
}

TEST(MemoryWatch, AllowsTheLimitAndWhatItDoesNotCount) {
  EXPECT_EQ(why(0, 0, 0), "");
  EXPECT_EQ(why(728, 0, 0), "");
  EXPECT_EQ(why(400, 328, 5), "");
}

TEST(MemoryWatch, RefusesMoreAndNamesLimitAndProcesses) {
  EXPECT_EQ(why(729, 0, 0),
            "it has 729 MiB of private memory, and the limit is 600 MiB, with what a worker has "
            "from the start (ISOPOOL_WORKER_MEMORY)");
  EXPECT_EQ(why(400, 329, 1).find("it and 1 process that its code has started have 729 MiB"), 0u);
  EXPECT_EQ(why(400, 329, 2).find("it and 2 processes that its code has started have"), 0u);
}

TEST(MemoryWatch, RefusesMoreProcessesThanItCountsAndNamesTheirNumberAndTheMost) {
  EXPECT_EQ(why(0, 0, 256), "");
  EXPECT_EQ(why(0, 0, 300),
            "its code has started 300 processes that still run, and isopoold counts the memory of "
            "256 at most, so no more are allowed (ISOPOOL_WORKER_MEMORY)");
}

TEST(MemoryWatch, RefusesNothingWithoutALimit) {
  Processes::Tree tree;
  tree.processes = 300;
  tree.workerBytes = UINT64_MAX / 2;
  EXPECT_EQ(whyTooMuchMemory(tree), "");
}

}  // namespace
}  // namespace isopool::supervisor
