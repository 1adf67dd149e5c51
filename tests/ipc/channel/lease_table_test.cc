// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/lease_table.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/ipc/seed.h"

namespace isopool::ipc {
namespace {

class LeaseTableTest : public testing::Test {
 protected:
  const void* block(size_t number) const { return &blocks_[number]; }
  std::vector<const void*> collected() {
    std::vector<const void*> blocks;
    table_.collect([&](const void* block) { blocks.push_back(block); });
    return blocks;
  }

  std::unique_ptr<LeaseReturns> returns_ = std::make_unique<LeaseReturns>();
  LeaseTable table_{*returns_};
  std::array<char, kLeases + 1> blocks_{};
};

TEST_F(LeaseTableTest, AReturnedLeaseIsCollectedOnce) {
  const auto lease = table_.lend(block(0));
  ASSERT_TRUE(lease);
  EXPECT_NE(lease->generation, 0u);
  EXPECT_EQ(table_.outstanding(), 1u);
  EXPECT_TRUE(collected().empty());
  returnLease(*returns_, *lease);
  EXPECT_EQ(collected(), std::vector{block(0)});
  EXPECT_EQ(table_.outstanding(), 0u);
  returnLease(*returns_, *lease);
  EXPECT_TRUE(collected().empty()) << "given back twice";
}

TEST_F(LeaseTableTest, AnOldGenerationGivesNothingBack) {
  const auto first = table_.lend(block(0));
  returnLease(*returns_, *first);
  ASSERT_EQ(collected().size(), 1u);
  const auto second = table_.lend(block(1));
  ASSERT_EQ(second->index, first->index) << "the test needs the same place again";
  returnLease(*returns_, *first);
  EXPECT_TRUE(collected().empty());
  EXPECT_EQ(table_.outstanding(), 1u);
  returnLease(*returns_, *second);
  EXPECT_EQ(collected(), std::vector{block(1)});
}

TEST_F(LeaseTableTest, SaysWhenAllLeasesAreOut) {
  std::vector<Lease> leases;
  std::set<uint32_t> indices;
  for (size_t i = 0; i < kLeases; ++i) {
    const auto lease = table_.lend(block(i));
    ASSERT_TRUE(lease) << i;
    leases.push_back(*lease);
    indices.insert(lease->index);
  }
  EXPECT_EQ(indices.size(), kLeases);
  EXPECT_FALSE(table_.lend(block(kLeases)));
  EXPECT_EQ(table_.outstanding(), kLeases);
  returnLease(*returns_, leases[1234]);
  EXPECT_EQ(collected(), std::vector{block(1234)});
  EXPECT_TRUE(table_.lend(block(kLeases)));
}

TEST_F(LeaseTableTest, ACancelledLeaseIsFreeAndItsReturnMeansNothing) {
  const auto lease = table_.lend(block(0));
  EXPECT_TRUE(table_.cancel(*lease));
  EXPECT_FALSE(table_.cancel(*lease)) << "cancelled twice";
  returnLease(*returns_, *lease);
  EXPECT_TRUE(collected().empty());
  const auto next = table_.lend(block(1));
  EXPECT_FALSE(table_.cancel(*lease)) << "the lease is of another generation";
  EXPECT_TRUE(table_.cancel(*next));
  EXPECT_FALSE(table_.cancel(Lease{kLeases, 1}));
}

TEST_F(LeaseTableTest, ABlockMayBeLentSeveralTimes) {
  const auto first = table_.lend(block(0));
  const auto second = table_.lend(block(0));
  table_.lend(block(1));
  EXPECT_EQ(table_.leasesOf(block(0)), 2u);
  returnLease(*returns_, *first);
  returnLease(*returns_, *second);
  EXPECT_EQ(collected(), (std::vector{block(0), block(0)}));
  EXPECT_EQ(table_.leasesOf(block(0)), 0u);
  EXPECT_EQ(table_.leasesOf(block(1)), 1u);
}

TEST_F(LeaseTableTest, DeadBorrowersBlocksAreCollectedAndLateReturnsIgnored) {
  std::vector<Lease> leases;
  for (size_t i = 0; i < 100; ++i) leases.push_back(*table_.lend(block(i)));
  returnLease(*returns_, leases[7]);
  std::multiset<const void*> back;
  table_.collectAll([&](const void* block) { back.insert(block); });
  EXPECT_EQ(back.size(), 100u);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(back.count(block(i)), 1u);
  for (const Lease& lease : leases) returnLease(*returns_, lease);
  EXPECT_TRUE(collected().empty());
  EXPECT_EQ(table_.outstanding(), 0u);
}

TEST_F(LeaseTableTest, RandomReturnsReleaseOnlyLentBlocksAndOnlyOnce) {
  auto random = tests::seededRandom();
  std::multiset<const void*> lent;
  for (int round = 0; round < 300; ++round) {
    for (int i = 0; i < 20; ++i) {
      const void* lending = block(tests::pick<size_t>(random, 0, 50));
      if (table_.lend(lending)) lent.insert(lending);
    }
    for (int i = 0; i < 500; ++i) {
      const auto index = tests::pick<uint32_t>(random, 0, kLeases - 1);
      // Small numbers are sometimes correct by chance.
      returns_->returned[index].store(tests::pick<uint32_t>(random, 0, 1) == 0
                                          ? tests::pick<uint32_t>(random, 0, 8)
                                          : static_cast<uint32_t>(random()));
      returns_->groupReturns[index / kLeasesPerGroup].store(static_cast<uint32_t>(random()));
    }
    for (const void* back : collected()) {
      const auto found = lent.find(back);
      ASSERT_NE(found, lent.end()) << "was returned without being lent";
      lent.erase(found);
    }
    ASSERT_EQ(table_.outstanding(), lent.size());
  }
}

TEST_F(LeaseTableTest, AReturnThatNamesNoLeaseIsIgnored) {
  table_.lend(block(0));
  returnLease(*returns_, Lease{kLeases, 1});
  returnLease(*returns_, Lease{UINT32_MAX, UINT32_MAX});
  EXPECT_TRUE(collected().empty());
}

TEST_F(LeaseTableTest, LendersAndReturnersOfSeveralThreadsLoseNothing) {
  constexpr int kPairs = 2;
  constexpr int kRounds = 50'000;
  std::atomic<int> back{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int pair = 0; pair < kPairs; ++pair) {
    threads.emplace_back([&, pair] {
      for (int round = 0; round < kRounds;) {
        const auto lease = table_.lend(block(static_cast<size_t>(pair)));
        if (!lease) continue;
        returnLease(*returns_, *lease);
        ++round;
      }
    });
  }
  std::thread collector([&] {
    while (!done) table_.collect([&](const void*) { ++back; });
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  collector.join();
  table_.collect([&](const void*) { ++back; });
  EXPECT_EQ(back, kPairs * kRounds);
  EXPECT_EQ(table_.outstanding(), 0u);
}

}  // namespace
}  // namespace isopool::ipc
