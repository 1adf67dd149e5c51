// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/restart_policy.h"

#include <gtest/gtest.h>

namespace isopool::supervisor {
namespace {

class RestartPolicyTest : public testing::Test {
 protected:
  RestartPolicy::Decision early(int after) { return die(ExitKind::kBeforeFirstCall, after); }
  RestartPolicy::Decision served(int after) { return die(ExitKind::kAfterCall, after); }
  RestartPolicy::Decision die(ExitKind death, int after) {
    now_ += base::Milliseconds(after);
    return policy_.died(death, now_);
  }

  base::TimePoint now_{};
  RestartPolicy policy_{RestartLimits{10, base::Milliseconds(30'000), base::Milliseconds(60'000)}};
};

TEST_F(RestartPolicyTest, BacksOffWithEachEarlyExit) {
  EXPECT_EQ(early(0).delay, base::Milliseconds(0));
  EXPECT_EQ(early(1).delay, base::Milliseconds(10));
  EXPECT_EQ(early(1).delay, base::Milliseconds(100));
  EXPECT_EQ(early(1).delay, base::Milliseconds(1000));
  EXPECT_EQ(early(1).delay, base::Milliseconds(1000));
}

TEST_F(RestartPolicyTest, ADeathThatAClientCausedIsRestartedAtOnceAndChangesNoCount) {
  for (int i = 0; i < 9; ++i) early(1);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(die(ExitKind::kOfClient, 1).delay, base::Milliseconds(0));
  }
  EXPECT_EQ(policy_.earlyExitsInARow(), 9u);
  EXPECT_TRUE(early(1).quarantined);
}

TEST_F(RestartPolicyTest, ADeathAfterServiceIsRestartedAtOnceHoweverMany) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(served(1).delay, base::Milliseconds(0));
    EXPECT_FALSE(served(1).quarantined);
  }
}

TEST_F(RestartPolicyTest, ADeathAfterServiceForgivesTheBarrenOnes) {
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(early(1).quarantined);
  served(1);
  EXPECT_EQ(policy_.earlyExitsInARow(), 0u);
  EXPECT_EQ(early(1).delay, base::Milliseconds(0));
}

TEST_F(RestartPolicyTest, QuarantinesAtTheLimitWithinTheWindow) {
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(early(1000).quarantined);
  const auto tenth = early(1000);
  EXPECT_TRUE(tenth.quarantined);
  EXPECT_EQ(tenth.delay, base::Milliseconds(60'000));
  EXPECT_EQ(policy_.earlyExitsInARow(), 10u);
}

TEST_F(RestartPolicyTest, NeverQuarantinesWhatDiesMoreSeldom) {
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(early(3400).quarantined);
}

TEST_F(RestartPolicyTest, AQuietWindowResetsTheBackOff) {
  early(0);
  early(1);
  EXPECT_EQ(early(30'001).delay, base::Milliseconds(0));
}

TEST_F(RestartPolicyTest, AfterAQuarantineComesOneMoreTry) {
  for (int i = 0; i < 10; ++i) early(1);
  EXPECT_TRUE(early(60'001).quarantined);
  served(60'001);
  EXPECT_FALSE(early(1).quarantined);
}

}  // namespace
}  // namespace isopool::supervisor
