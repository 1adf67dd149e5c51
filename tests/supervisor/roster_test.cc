// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/roster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace isopool::supervisor {
namespace {

using base::Epoch;
using base::PoolId;

/// Starts workers by numbering them, and notes the rest.
class FakeEffects : public RosterEffects {
 public:
  Epoch startWorker(bool spare) override {
    started.push_back(++last_);
    if (spare) startedSpares.insert(last_);
    return Epoch(last_);
  }
  void retireWorker(Epoch epoch) override { retired.push_back(epoch.value); }
  void assignWorker(const Slot& slot, Epoch epoch) override {
    serving[{slot.pool.value, slot.index}] = epoch.value;
  }
  void slotQuarantined(const Quarantine& quarantine) override { quarantines.push_back(quarantine); }
  void spareQuarantined(uint32_t, base::Milliseconds) override { ++spareQuarantines; }

  std::vector<uint64_t> started;
  std::set<uint64_t> startedSpares;
  std::vector<uint64_t> retired;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> serving;
  std::vector<Quarantine> quarantines;
  int spareQuarantines = 0;

 private:
  uint64_t last_ = 0;
};

class RosterTest : public testing::Test {
 protected:
  static constexpr PoolId kPool{1};

  void open(uint32_t workers) { roster_.openPool(kPool, workers); }
  void usable(uint64_t epoch) { roster_.workerUsable(Epoch(epoch)); }
  void serves(uint64_t epoch) { roster_.workerLost(Epoch(epoch), Death::kAfterService, now_); }
  void diesBarren(uint64_t epoch) { roster_.workerLost(Epoch(epoch), Death::kBarren, now_); }
  void pass(int milliseconds) {
    now_ += base::Milliseconds(milliseconds);
    roster_.tick(now_);
  }
  uint64_t serving(uint32_t slot, uint32_t pool = 1) { return effects_.serving[{pool, slot}]; }
  uint64_t lastStarted() const { return effects_.started.back(); }

  base::TimePoint now_{};
  FakeEffects effects_;
  Roster roster_{effects_, 1,
                 RestartLimits{3, base::Milliseconds(30'000), base::Milliseconds(30'000)}};
};

TEST_F(RosterTest, AsksForAllWorkersAtOnceAndForTheSpareLast) {
  open(3);
  EXPECT_EQ(effects_.started, (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(effects_.startedSpares, std::set<uint64_t>{4});
}

TEST_F(RosterTest, AWorkerThatWasMadeForASlotServesIt) {
  open(2);
  usable(2);
  EXPECT_EQ(serving(1), 2u);
  EXPECT_EQ(serving(0), 0u);
}

TEST_F(RosterTest, ASpareThatIsReadyFirstTakesAWaitingSlotAndTheSlotsWorkerBecomesTheSpare) {
  open(1);
  usable(2);
  EXPECT_EQ(serving(0), 2u);
  usable(1);
  EXPECT_FALSE(roster_.seatOf(Epoch(1))->slot);
  EXPECT_EQ(effects_.started.size(), 2u);
}

TEST_F(RosterTest, TheSpareTakesOverAtOnceAndIsReplaced) {
  open(1);
  usable(1);
  usable(2);
  serves(1);
  EXPECT_EQ(serving(0), 2u);
  EXPECT_EQ(lastStarted(), 3u);
  EXPECT_EQ(effects_.startedSpares.count(3), 1u);
}

TEST_F(RosterTest, WithoutASpareAReplacementIsMadeForTheSlot) {
  Roster roster(effects_, 0, RestartLimits{});
  roster.openPool(kPool, 1);
  roster.workerUsable(Epoch(1));
  roster.workerLost(Epoch(1), Death::kAfterService, now_);
  EXPECT_EQ(lastStarted(), 2u);
  roster.workerUsable(Epoch(2));
  EXPECT_EQ(serving(0), 2u);
}

TEST_F(RosterTest, ASecondPoolTakesTheReadySpare) {
  open(1);
  usable(1);
  usable(2);
  roster_.openPool(PoolId(2), 1);
  EXPECT_EQ(serving(0, 2), 2u);
  EXPECT_EQ(effects_.startedSpares.count(lastStarted()), 1u);
}

TEST_F(RosterTest, AQuarantineIsToldToWhoeverComesLaterAndABackOffIsNot) {
  RestartLimits limits;
  limits.deaths = 2;
  Roster roster(effects_, 0, limits);
  roster.openPool(kPool, 1);
  roster.workerLost(Epoch(1), Death::kBarren, now_);
  EXPECT_TRUE(roster.quarantinedSlots(now_).empty());
  roster.workerLost(Epoch(2), Death::kBarren, now_);
  const auto quarantines = roster.quarantinedSlots(now_ + base::Milliseconds(1000));
  ASSERT_EQ(quarantines.size(), 1u);
  EXPECT_EQ(quarantines[0].deaths, 2u);
  EXPECT_EQ(quarantines[0].duration, limits.quarantine - base::Milliseconds(1000));
  roster.tick(now_ + limits.quarantine);
  EXPECT_TRUE(roster.quarantinedSlots(now_ + limits.quarantine).empty());
}

TEST_F(RosterTest, BarrenDeathsOfOneSlotAreDelayedEvenWithASpareReady) {
  open(1);
  usable(1);
  usable(2);
  diesBarren(1);
  EXPECT_EQ(serving(0), 2u);
  usable(3);
  diesBarren(2);
  EXPECT_EQ(serving(0), 2u) << "nothing new before the delay is over";
  EXPECT_EQ(*roster_.nextTick() - now_, base::Milliseconds(10));
  pass(10);
  EXPECT_EQ(serving(0), 3u);
}

TEST_F(RosterTest, ACrashLoopIsQuarantinedReportedAndTriedOnceMore) {
  open(1);
  usable(1);
  diesBarren(1);
  diesBarren(lastStarted());
  pass(10);
  EXPECT_TRUE(effects_.quarantines.empty());
  diesBarren(lastStarted());
  ASSERT_EQ(effects_.quarantines.size(), 1u);
  EXPECT_EQ(effects_.quarantines[0].deaths, 3u);
  const size_t started = effects_.started.size();
  pass(29'999);
  EXPECT_EQ(effects_.started.size(), started);
  pass(1);
  EXPECT_EQ(effects_.started.size(), started + 1);
  diesBarren(lastStarted());
  EXPECT_EQ(effects_.quarantines.size(), 2u);
}

TEST_F(RosterTest, AReadySpareKeepsOutOfAQuarantinedSlot) {
  open(1);
  usable(1);
  for (int i = 0; i < 3; ++i) {
    diesBarren(i == 0 ? 1 : lastStarted());
    pass(10);
  }
  ASSERT_EQ(effects_.quarantines.size(), 1u);
  usable(2);
  EXPECT_EQ(serving(0), 1u);
  EXPECT_EQ(roster_.unservedSlots().size(), 1u);
  pass(30'000);
  EXPECT_EQ(serving(0), 2u);
}

TEST_F(RosterTest, ADyingSpareIsReplacedByTheSamePolicy) {
  open(1);
  usable(1);
  diesBarren(2);
  EXPECT_EQ(lastStarted(), 3u);
  diesBarren(3);
  pass(10);
  diesBarren(lastStarted());
  EXPECT_EQ(effects_.spareQuarantines, 1);
  EXPECT_EQ(serving(0), 1u);
}

TEST_F(RosterTest, AWorkerThatTheZygoteLostCostsTheSlotNothing) {
  open(1);
  for (int i = 0; i < 50; ++i) roster_.workerNotMade(Epoch(i == 0 ? 1 : lastStarted()));
  EXPECT_TRUE(effects_.quarantines.empty());
  EXPECT_FALSE(roster_.nextTick());
}

TEST_F(RosterTest, ClosingAPoolRetiresItsWorkersAndWithTheLastTheSpare) {
  open(2);
  roster_.openPool(PoolId(2), 1);
  for (uint64_t epoch = 1; epoch <= 4; ++epoch) usable(epoch);
  roster_.closePool(kPool);
  EXPECT_EQ(effects_.retired.size(), 2u);
  roster_.closePool(PoolId(2));
  EXPECT_EQ(effects_.retired.size(), 4u);
  EXPECT_FALSE(roster_.poolWithoutWorker());
}

TEST_F(RosterTest, DeathsOfUnknownWorkersChangeNothing) {
  open(1);
  roster_.closePool(kPool);
  const size_t started = effects_.started.size();
  diesBarren(1);
  diesBarren(99);
  usable(1);
  EXPECT_EQ(effects_.started.size(), started);
}

TEST_F(RosterTest, KnowsAPoolThatNobodyServes) {
  open(2);
  EXPECT_TRUE(roster_.poolWithoutWorker());
  usable(1);
  EXPECT_FALSE(roster_.poolWithoutWorker());
  EXPECT_EQ(roster_.unservedSlots(), (std::vector<Slot>{{kPool, 1}}));
}

}  // namespace
}  // namespace isopool::supervisor
