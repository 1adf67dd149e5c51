// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/client_holds.h"

#include <gtest/gtest.h>

namespace isopool::supervisor {
namespace {

using base::Milliseconds;

class ClientHoldsTest : public testing::Test {
 protected:
  static constexpr ClientId kClient{7};
  static constexpr ClientId kOther{3};

  RestartPolicy::Decision dies(int after, uint64_t calls = 0, ClientId client = kClient) {
    now_ += Milliseconds(after);
    return holds_.died(client, {"bert", "SIGSEGV", calls}, now_);
  }
  bool held(ClientId client = kClient) const { return holds_.isHeld(client, now_); }

  base::TimePoint now_{};
  ClientHolds holds_{RestartLimits{4, Milliseconds(30'000), Milliseconds(60'000)}};
};

TEST_F(ClientHoldsTest, GrowWithEachDeathInARow) {
  EXPECT_EQ(dies(0).delay, Milliseconds(0));
  EXPECT_FALSE(held());
  EXPECT_EQ(dies(1).delay, Milliseconds(10));
  EXPECT_TRUE(held());
  EXPECT_EQ(holds_.nextEnd(now_), now_ + Milliseconds(10));
  EXPECT_EQ(dies(10).delay, Milliseconds(100));
  EXPECT_FALSE(holds_.quarantineOf(kClient, now_)) << "a short hold is no quarantine";
  now_ += Milliseconds(100);
  EXPECT_FALSE(held());
  EXPECT_FALSE(holds_.nextEnd(now_));
}

TEST_F(ClientHoldsTest, BecomeAQuarantineThatNamesModelDeathsAndTime) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(dies(1).quarantined);
  EXPECT_TRUE(dies(1).quarantined);
  const auto quarantine = holds_.quarantineOf(kClient, now_ + Milliseconds(1000));
  ASSERT_TRUE(quarantine);
  EXPECT_EQ(quarantine->deaths, 4u);
  EXPECT_EQ(quarantine->duration, Milliseconds(59'000));
  EXPECT_EQ(quarantine->text,
            "gets no further worker for 60000 ms from the last death on: its model 'bert' ended 4 "
            "workers in a row before it had completed a call there, the last by SIGSEGV "
            "(ISOPOOL_RESTART_LIMIT, ISOPOOL_QUARANTINE)");
  EXPECT_EQ(holds_.quarantined(now_), 1u);
  now_ += Milliseconds(60'000);
  EXPECT_FALSE(holds_.quarantineOf(kClient, now_));
  EXPECT_EQ(holds_.quarantined(now_), 0u);
  EXPECT_TRUE(dies(0).quarantined) << "one more worker was tried";
}

TEST_F(ClientHoldsTest, AreOfOneClientOnly) {
  for (int i = 0; i < 4; ++i) dies(1);
  EXPECT_TRUE(held());
  EXPECT_FALSE(held(kOther));
  EXPECT_EQ(dies(1, 0, kOther).delay, Milliseconds(0));
}

TEST_F(ClientHoldsTest, BeginAnewAfterACallThatWasCompletedAnywhere) {
  for (int i = 0; i < 3; ++i) dies(1, 5);
  EXPECT_EQ(dies(1, 6).delay, Milliseconds(0));
  EXPECT_EQ(dies(1, 6).delay, Milliseconds(10));
}

TEST_F(ClientHoldsTest, AreNotShortenedByTheDeathOfAnEarlierWorker) {
  for (int i = 0; i < 4; ++i) dies(1);
  dies(1000, 1);  // it had completed a call there: the row begins anew, the quarantine remains
  EXPECT_TRUE(holds_.quarantineOf(kClient, now_));
}

TEST_F(ClientHoldsTest, EndWhenTheClientLeaves) {
  for (int i = 0; i < 4; ++i) dies(1);
  holds_.forget(kClient);
  EXPECT_FALSE(held());
  EXPECT_FALSE(holds_.nextEnd(now_));
}

}  // namespace
}  // namespace isopool::supervisor
