// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/slot_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace isopool::supervisor {
namespace {

using base::Epoch;
using base::PoolId;

/// Numbers the workers that it starts, and records the other effects.
class FakeEffects : public SlotTableEffects {
 public:
  Epoch startWorker(bool spare, uint32_t gpu) override {
    started.push_back(++last_);
    gpuOf[last_] = gpu;
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
  std::map<uint64_t, uint32_t> gpuOf;
  std::vector<uint64_t> retired;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> serving;
  std::vector<Quarantine> quarantines;
  int spareQuarantines = 0;

 private:
  uint64_t last_ = 0;
};

class SlotTableTest : public testing::Test {
 protected:
  static constexpr PoolId kPool{1};

  void open(uint32_t workers) { slotTable_.openPool(kPool, workers); }
  void usable(uint64_t epoch) { slotTable_.workerUsable(Epoch(epoch)); }
  void serves(uint64_t epoch) { slotTable_.workerLost(Epoch(epoch), ExitKind::kAfterCall, now_); }
  void diesEarly(uint64_t epoch) {
    slotTable_.workerLost(Epoch(epoch), ExitKind::kBeforeFirstCall, now_);
  }
  void pass(int milliseconds) {
    now_ += base::Milliseconds(milliseconds);
    slotTable_.tick(now_);
  }
  uint64_t serving(uint32_t slot, uint32_t pool = 1) { return effects_.serving[{pool, slot}]; }
  uint64_t lastStarted() const { return effects_.started.back(); }

  base::TimePoint now_{};
  FakeEffects effects_;
  SlotTable slotTable_{effects_, 1,
                       RestartLimits{3, base::Milliseconds(30'000), base::Milliseconds(30'000)}, 1};
};

/// The places of a group with several GPUs.
class SlotTableOfGpus : public testing::Test {
 protected:
  static constexpr PoolId kPool{1};

  SlotTable table(uint32_t spares, uint32_t gpus) {
    return {effects_, spares,
            RestartLimits{3, base::Milliseconds(30'000), base::Milliseconds(30'000)}, gpus};
  }
  std::vector<uint32_t> gpusOfStarted() const {
    std::vector<uint32_t> gpus;
    for (const uint64_t epoch : effects_.started) gpus.push_back(effects_.gpuOf.at(epoch));
    return gpus;
  }

  FakeEffects effects_;
};

TEST_F(SlotTableTest, AsksForAllWorkersAtOnceAndForTheSpareLast) {
  open(3);
  EXPECT_EQ(effects_.started, (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(effects_.startedSpares, std::set<uint64_t>{4});
}

TEST_F(SlotTableTest, AWorkerThatWasMadeForASlotServesIt) {
  open(2);
  usable(2);
  EXPECT_EQ(serving(1), 2u);
  EXPECT_EQ(serving(0), 0u);
}

TEST_F(SlotTableTest, ASpareThatIsReadyFirstTakesAWaitingSlotAndTheSlotsWorkerBecomesTheSpare) {
  open(1);
  usable(2);
  EXPECT_EQ(serving(0), 2u);
  usable(1);
  EXPECT_FALSE(slotTable_.assignmentOf(Epoch(1))->slot);
  EXPECT_EQ(effects_.started.size(), 2u);
}

TEST_F(SlotTableTest, TheSpareTakesOverAtOnceAndIsReplaced) {
  open(1);
  usable(1);
  usable(2);
  serves(1);
  EXPECT_EQ(serving(0), 2u);
  EXPECT_EQ(lastStarted(), 3u);
  EXPECT_EQ(effects_.startedSpares.count(3), 1u);
}

TEST_F(SlotTableTest, WithoutASpareAReplacementIsMadeForTheSlot) {
  SlotTable slotTable(effects_, 0, RestartLimits{}, 1);
  slotTable.openPool(kPool, 1);
  slotTable.workerUsable(Epoch(1));
  slotTable.workerLost(Epoch(1), ExitKind::kAfterCall, now_);
  EXPECT_EQ(lastStarted(), 2u);
  slotTable.workerUsable(Epoch(2));
  EXPECT_EQ(serving(0), 2u);
}

TEST_F(SlotTableTest, WithoutSparesReliefStartsOneForThisSlotOnly) {
  SlotTable slotTable(effects_, 0, RestartLimits{}, 1);
  slotTable.openPool(kPool, 2);
  slotTable.workerUsable(Epoch(1));
  slotTable.workerUsable(Epoch(2));
  EXPECT_FALSE(slotTable.relieve(Epoch(1)));
  EXPECT_FALSE(slotTable.relieve(Epoch(1)));
  EXPECT_EQ(effects_.started, (std::vector<uint64_t>{1, 2, 3})) << "one spare";
  EXPECT_EQ(effects_.startedSpares, std::set<uint64_t>{3});
  slotTable.workerUsable(Epoch(3));
  EXPECT_EQ(serving(0), 1u) << "it serves until the spare takes over";
  EXPECT_TRUE(slotTable.relieve(Epoch(1)));
  EXPECT_EQ(serving(0), 3u);
  EXPECT_EQ(lastStarted(), 3u) << "no spare is kept";
  EXPECT_FALSE(slotTable.assignmentOf(Epoch(1)));
}

TEST_F(SlotTableTest, WithoutSparesADeathTakesTheSpareThatAReliefStarted) {
  SlotTable slotTable(effects_, 0, RestartLimits{}, 1);
  slotTable.openPool(kPool, 1);
  slotTable.workerUsable(Epoch(1));
  slotTable.relieve(Epoch(1));
  slotTable.workerUsable(Epoch(2));
  slotTable.workerLost(Epoch(1), ExitKind::kAfterCall, now_);
  EXPECT_EQ(serving(0), 2u);
  EXPECT_EQ(lastStarted(), 2u);
}

TEST_F(SlotTableTest, ASecondPoolTakesTheReadySpare) {
  open(1);
  usable(1);
  usable(2);
  slotTable_.openPool(PoolId(2), 1);
  EXPECT_EQ(serving(0, 2), 2u);
  EXPECT_EQ(effects_.startedSpares.count(lastStarted()), 1u);
}

TEST_F(SlotTableTest, AWorkerThatAClientEndsLeavesItsSlotToTheNextHoweverOften) {
  open(1);
  usable(1);
  for (int i = 0; i < 100; ++i) {
    slotTable_.workerLost(Epoch(serving(0)), ExitKind::kOfClient, now_);
    usable(lastStarted());
  }
  EXPECT_TRUE(effects_.quarantines.empty());
  EXPECT_EQ(effects_.spareQuarantines, 0);
  EXPECT_EQ(slotTable_.nextTick(), std::nullopt);
  EXPECT_TRUE(slotTable_.unservedSlots().empty());
}

TEST_F(SlotTableTest, ListsQuarantinesButNotBackOffs) {
  RestartLimits limits;
  limits.deaths = 2;
  SlotTable slotTable(effects_, 0, limits, 1);
  slotTable.openPool(kPool, 1);
  slotTable.workerLost(Epoch(1), ExitKind::kBeforeFirstCall, now_);
  EXPECT_TRUE(slotTable.quarantinedSlots(now_).empty());
  slotTable.workerLost(Epoch(2), ExitKind::kBeforeFirstCall, now_);
  const auto quarantines = slotTable.quarantinedSlots(now_ + base::Milliseconds(1000));
  ASSERT_EQ(quarantines.size(), 1u);
  EXPECT_EQ(quarantines[0].deaths, 2u);
  EXPECT_EQ(quarantines[0].duration, limits.quarantine - base::Milliseconds(1000));
  slotTable.tick(now_ + limits.quarantine);
  EXPECT_TRUE(slotTable.quarantinedSlots(now_ + limits.quarantine).empty());
}

TEST_F(SlotTableTest, EarlyExitsDelayTheNextWorkerDespiteAReadySpare) {
  open(1);
  usable(1);
  usable(2);
  diesEarly(1);
  EXPECT_EQ(serving(0), 2u);
  usable(3);
  diesEarly(2);
  EXPECT_EQ(serving(0), 2u) << "nothing new before the delay is over";
  EXPECT_EQ(*slotTable_.nextTick() - now_, base::Milliseconds(10));
  pass(10);
  EXPECT_EQ(serving(0), 3u);
}

TEST_F(SlotTableTest, ACrashLoopIsQuarantinedReportedAndTriedOnceMore) {
  open(1);
  usable(1);
  diesEarly(1);
  diesEarly(lastStarted());
  pass(10);
  EXPECT_TRUE(effects_.quarantines.empty());
  diesEarly(lastStarted());
  ASSERT_EQ(effects_.quarantines.size(), 1u);
  EXPECT_EQ(effects_.quarantines[0].deaths, 3u);
  const size_t started = effects_.started.size();
  pass(29'999);
  EXPECT_EQ(effects_.started.size(), started);
  pass(1);
  EXPECT_EQ(effects_.started.size(), started + 1);
  diesEarly(lastStarted());
  EXPECT_EQ(effects_.quarantines.size(), 2u);
}

TEST_F(SlotTableTest, AReadySpareKeepsOutOfAQuarantinedSlot) {
  open(1);
  usable(1);
  for (int i = 0; i < 3; ++i) {
    diesEarly(i == 0 ? 1 : lastStarted());
    pass(10);
  }
  ASSERT_EQ(effects_.quarantines.size(), 1u);
  usable(2);
  EXPECT_EQ(serving(0), 1u);
  EXPECT_EQ(slotTable_.unservedSlots().size(), 1u);
  pass(30'000);
  EXPECT_EQ(serving(0), 2u);
}

TEST_F(SlotTableTest, ADyingSpareIsReplacedByTheSamePolicy) {
  open(1);
  usable(1);
  diesEarly(2);
  EXPECT_EQ(lastStarted(), 3u);
  diesEarly(3);
  pass(10);
  diesEarly(lastStarted());
  EXPECT_EQ(effects_.spareQuarantines, 1);
  EXPECT_EQ(serving(0), 1u);
}

TEST_F(SlotTableTest, AWorkerThatTheZygoteLostCostsTheSlotNothing) {
  open(1);
  for (int i = 0; i < 50; ++i) slotTable_.workerNotMade(Epoch(i == 0 ? 1 : lastStarted()));
  EXPECT_TRUE(effects_.quarantines.empty());
  EXPECT_FALSE(slotTable_.nextTick());
}

TEST_F(SlotTableTest, ClosingAPoolRetiresItsWorkersAndWithTheLastTheSpare) {
  open(2);
  slotTable_.openPool(PoolId(2), 1);
  for (uint64_t epoch = 1; epoch <= 4; ++epoch) usable(epoch);
  slotTable_.closePool(kPool);
  EXPECT_EQ(effects_.retired.size(), 2u);
  slotTable_.closePool(PoolId(2));
  EXPECT_EQ(effects_.retired.size(), 4u);
  EXPECT_FALSE(slotTable_.poolWithoutWorker());
}

TEST_F(SlotTableTest, MoreSlotsOfAnOpenPoolTakeTheSpareAndThenStartWorkers) {
  open(1);
  usable(1);
  usable(2);
  EXPECT_TRUE(slotTable_.resizePool(kPool, 3).empty());
  EXPECT_EQ(serving(1), 2u);
  // A spare, and a worker for the last slot.
  EXPECT_EQ(effects_.started, (std::vector<uint64_t>{1, 2, 3, 4}));
  usable(4);
  EXPECT_EQ(serving(2), 4u);
  EXPECT_EQ(slotTable_.slotsOf(kPool).size(), 3u);
}

TEST_F(SlotTableTest, FewerSlotsReturnTheirUsableWorkersAndRetireTheOthers) {
  open(3);
  usable(1);
  usable(2);
  EXPECT_EQ(slotTable_.resizePool(kPool, 1), std::vector<Epoch>{Epoch(2)});
  EXPECT_EQ(effects_.retired, std::vector<uint64_t>{3});
  EXPECT_EQ(slotTable_.slotsOf(kPool).size(), 1u);
  EXPECT_FALSE(slotTable_.assignmentOf(Epoch(2)));
  const size_t before = effects_.started.size();
  serves(2);
  EXPECT_EQ(effects_.started.size(), before) << "its death needs no report";
}

TEST_F(SlotTableTest, ASlotThatIsRemovedIsNotTriedAgain) {
  open(2);
  usable(1);
  diesEarly(2);
  diesEarly(effects_.started.back());
  ASSERT_TRUE(slotTable_.nextTick());
  slotTable_.resizePool(kPool, 1);
  EXPECT_FALSE(slotTable_.nextTick());
}

TEST_F(SlotTableTest, DeathsOfUnknownWorkersChangeNothing) {
  open(1);
  slotTable_.closePool(kPool);
  const size_t started = effects_.started.size();
  diesEarly(1);
  diesEarly(99);
  usable(1);
  EXPECT_EQ(effects_.started.size(), started);
}

TEST_F(SlotTableTest, ReportsAPoolWithoutWorker) {
  open(2);
  EXPECT_TRUE(slotTable_.poolWithoutWorker());
  usable(1);
  EXPECT_FALSE(slotTable_.poolWithoutWorker());
  EXPECT_EQ(slotTable_.unservedSlots(), (std::vector<Slot>{{kPool, 1}}));
}

TEST_F(SlotTableOfGpus, SlotsTakeTheGpusInTurnsAndEachUsedGpuGetsItsSpares) {
  SlotTable slots = table(1, 3);
  slots.openPool(kPool, 5);
  EXPECT_EQ(gpusOfStarted(), (std::vector<uint32_t>{0, 1, 2, 0, 1, 0, 1, 2}));
  EXPECT_EQ(effects_.startedSpares, (std::set<uint64_t>{6, 7, 8}));
}

TEST_F(SlotTableOfGpus, AGpuWithoutSlotsGetsNoSpare) {
  SlotTable slots = table(2, 4);
  slots.openPool(kPool, 1);
  EXPECT_EQ(gpusOfStarted(), (std::vector<uint32_t>{0, 0, 0}));
}

TEST_F(SlotTableOfGpus, ASecondPoolBeginsWithTheGpuThatHasTheFewestSlots) {
  SlotTable slots = table(0, 2);
  slots.openPool(kPool, 1);
  slots.openPool(PoolId(2), 1);
  EXPECT_EQ(gpusOfStarted(), (std::vector<uint32_t>{0, 1}));
}

TEST_F(SlotTableOfGpus, ADeadWorkerIsReplacedByTheSpareOfItsOwnGpu) {
  SlotTable slots = table(1, 2);
  slots.openPool(kPool, 2);
  for (uint64_t epoch = 1; epoch <= 4; ++epoch) slots.workerUsable(Epoch(epoch));
  slots.workerLost(Epoch(2), ExitKind::kAfterCall, {});
  EXPECT_EQ((effects_.serving[{1, 1}]), 4u);
  EXPECT_EQ(effects_.gpuOf.at(effects_.started.back()), 1u);
}

TEST_F(SlotTableOfGpus, AWaitingSlotIsNotGivenTheSpareOfAnotherGpu) {
  SlotTable slots = table(1, 2);
  slots.openPool(kPool, 2);
  slots.workerUsable(Epoch(1));
  slots.workerUsable(Epoch(3));  // the spare of GPU 0; slot 1 is for GPU 1
  EXPECT_EQ(effects_.serving.count({1, 1}), 0u);
  slots.workerUsable(Epoch(4));
  EXPECT_EQ((effects_.serving[{1, 1}]), 4u);
}

TEST_F(SlotTableOfGpus, AWorkerOfAGroupWithoutSparesIsRelievedByOneOfItsOwnGpu) {
  SlotTable slots = table(0, 2);
  slots.openPool(kPool, 2);
  slots.workerUsable(Epoch(1));
  slots.workerUsable(Epoch(2));
  EXPECT_FALSE(slots.relieve(Epoch(1)));
  EXPECT_FALSE(slots.relieve(Epoch(2)));
  EXPECT_EQ(gpusOfStarted(), (std::vector<uint32_t>{0, 1, 0, 1}));
  slots.workerUsable(Epoch(4));
  EXPECT_FALSE(slots.relieve(Epoch(1)));
  EXPECT_TRUE(slots.relieve(Epoch(2)));
  EXPECT_EQ((effects_.serving[{1, 1}]), 4u);
}

TEST_F(SlotTableOfGpus, SparesOfAGpuThatLosesItsLastSlotAreRetired) {
  SlotTable slots = table(1, 2);
  slots.openPool(kPool, 2);
  for (uint64_t epoch = 1; epoch <= 4; ++epoch) slots.workerUsable(Epoch(epoch));
  EXPECT_EQ(slots.resizePool(kPool, 1), std::vector<Epoch>{Epoch(2)});
  EXPECT_EQ(effects_.retired, std::vector<uint64_t>{4});
  slots.resizePool(kPool, 2);
  EXPECT_EQ(gpusOfStarted(), (std::vector<uint32_t>{0, 1, 0, 1, 1, 1}));
}

}  // namespace
}  // namespace isopool::supervisor
