// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/separation.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace isopool::supervisor {
namespace {

using base::Milliseconds;

const ClientId kFirst(1);
const ClientId kSecond(2);
const ClientId kThird(3);
const ClientId kFourth(4);

class SeparationTest : public testing::Test {
 protected:
  static constexpr Milliseconds kQuarantine{60'000};
  using Slots = std::vector<uint32_t>;

  bool died(const std::set<ClientId>& ran, size_t slots = 2) {
    now_ += Milliseconds(1);
    return separation_.died(ran, slots, now_);
  }
  void suspect(const std::set<ClientId>& ran, size_t slots = 2) {
    while (!died(ran, slots)) {
    }
  }
  Slots slotsOf(ClientId client, size_t slots = 2) const {
    return separation_.slotsOf(client, slots);
  }

  base::TimePoint now_{};
  Separation separation_{RestartLimits{10, Milliseconds(30'000), kQuarantine}};
};

TEST_F(SeparationTest, GivesSuspectsSlotsOfTheirOwnAfterThreeDeaths) {
  EXPECT_FALSE(died({kFirst, kSecond}));
  EXPECT_FALSE(died({kFirst, kSecond}));
  EXPECT_FALSE(separation_.active());
  EXPECT_EQ(slotsOf(kFirst), (Slots{0, 1}));
  EXPECT_TRUE(died({kFirst, kSecond}));
  EXPECT_EQ(slotsOf(kFirst), (Slots{0}));
  EXPECT_EQ(slotsOf(kSecond), (Slots{1}));
  EXPECT_EQ(slotsOf(kThird), (Slots{1})) << "no suspect";
  // With more slots all of them are used, and one part is for those that are no suspects.
  EXPECT_EQ(slotsOf(kFirst, 7), (Slots{0, 3, 6}));
  EXPECT_EQ(slotsOf(kSecond, 7), (Slots{1, 4}));
  EXPECT_EQ(slotsOf(kThird, 7), (Slots{2, 5}));
}

TEST_F(SeparationTest, DoesNotFollowFromDeathsThatAreFarApartOrOfOneProgram) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(died({kFirst, kSecond}));
    now_ += Milliseconds(15'001);
  }
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(died({kFirst}));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(died({kFirst, kSecond}, 1)) << "one slot is for all";
  EXPECT_FALSE(separation_.active());
}

TEST_F(SeparationTest, SetsTheOneApartInWhoseWorkerOnlyItsCodeRan) {
  suspect({kFirst, kSecond});
  EXPECT_FALSE(died({kFirst, kSecond})) << "that worker is from before";
  EXPECT_TRUE(died({kSecond}));
  EXPECT_TRUE(separation_.isApart(kSecond));
  EXPECT_EQ(slotsOf(kSecond), (Slots{0}));
  EXPECT_EQ(slotsOf(kFirst), (Slots{1}));
  EXPECT_EQ(slotsOf(kThird, 4), (Slots{1, 2, 3}));
}

TEST_F(SeparationTest, IsOverWhenThereWasNoDeathForTheTimeOfAQuarantine) {
  suspect({kFirst, kSecond});
  now_ += kQuarantine / 2;
  EXPECT_FALSE(separation_.tick(now_));
  died({kSecond});
  now_ += kQuarantine / 2;
  died({kSecond});
  EXPECT_EQ(separation_.nextTick(), now_ + kQuarantine);
  now_ += kQuarantine;
  EXPECT_TRUE(separation_.tick(now_));
  EXPECT_FALSE(separation_.active());
  EXPECT_FALSE(separation_.nextTick());
  EXPECT_EQ(slotsOf(kSecond), (Slots{0, 1}));
  EXPECT_TRUE(died({kFirst, kSecond})) << "one that was apart is apart after one more death";
  EXPECT_TRUE(separation_.isApart(kSecond));
}

TEST_F(SeparationTest, EndsWithTheProgramThatWasSuspected) {
  suspect({kFirst, kSecond});
  EXPECT_FALSE(separation_.forget(kThird));
  EXPECT_TRUE(separation_.forget(kFirst));
  EXPECT_FALSE(separation_.active());
  suspect({kFirst, kSecond});
  died({kFirst});
  EXPECT_TRUE(separation_.forget(kFirst));
  EXPECT_FALSE(separation_.active());
  EXPECT_FALSE(died({kFirst, kSecond})) << "the number is of another program by then";
}

// Programs of which one ends workers at any time, a model of a group: each worker has run the code
// of those that used its slot while it lived. For any number of programs and slots that one is
// apart after few deaths, and the deaths of others' workers end.
TEST_F(SeparationTest, FindsTheOneAmongManyAndNoOther) {
  for (size_t slots = 2; slots < 6; ++slots) {
    for (uint64_t programs = 2; programs < 20; ++programs) {
      for (uint64_t culprit = 1; culprit <= programs; ++culprit) {
        Separation separation{RestartLimits{10, Milliseconds(30'000), kQuarantine}};
        std::vector<std::set<ClientId>> ran(slots);
        size_t deaths = 0;
        while (!separation.isApart(ClientId(culprit))) {
          ASSERT_LT(deaths, 30u) << slots << " slots, program " << culprit << " of " << programs;
          for (uint64_t each = 1; each <= programs; ++each) {
            for (const uint32_t slot : separation.slotsOf(ClientId(each), slots)) {
              ran[slot].insert(ClientId(each));
            }
          }
          for (std::set<ClientId>& worker : ran) {
            if (worker.count(ClientId(culprit)) == 0) continue;
            now_ += Milliseconds(1);
            separation.died(worker, slots, now_);
            ++deaths;
            worker.clear();
            break;
          }
        }
        for (uint64_t each = 1; each <= programs; ++each) {
          const Slots own = separation.slotsOf(ClientId(each), slots);
          EXPECT_EQ(own == Slots{0}, each == culprit);
          EXPECT_EQ(std::count(own.begin(), own.end(), 0u), each == culprit ? 1 : 0);
        }
      }
    }
  }
}

TEST_F(SeparationTest, LeavesEachProgramASlotWhateverHappens) {
  for (const size_t slots : {1u, 2u, 3u, 8u}) {
    suspect({kFirst, kSecond, kThird, kFourth}, 3);
    for (const ClientId client : {kFirst, kSecond, kThird, kFourth, ClientId(5)}) {
      EXPECT_FALSE(slotsOf(client, slots).empty());
    }
    died({kSecond}, 3);
    for (const ClientId client : {kFirst, kSecond, kThird, kFourth, ClientId(5)}) {
      EXPECT_FALSE(slotsOf(client, slots).empty());
    }
    separation_.forget(kSecond);
  }
}

}  // namespace
}  // namespace isopool::supervisor
