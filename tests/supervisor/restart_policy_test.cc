// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/restart_policy.h"

#include <gtest/gtest.h>

namespace isopool::supervisor {
namespace {

class RestartPolicyTest : public testing::Test {
 protected:
  RestartPolicy::Decision barren(int after) { return die(Death::kBarren, after); }
  RestartPolicy::Decision served(int after) { return die(Death::kAfterService, after); }
  RestartPolicy::Decision die(Death death, int after) {
    now_ += base::Milliseconds(after);
    return policy_.died(death, now_);
  }

  base::TimePoint now_{};
  RestartPolicy policy_{RestartLimits{10, base::Milliseconds(30'000), base::Milliseconds(60'000)}};
};

TEST_F(RestartPolicyTest, BacksOffWithEachBarrenDeath) {
  EXPECT_EQ(barren(0).delay, base::Milliseconds(0));
  EXPECT_EQ(barren(1).delay, base::Milliseconds(10));
  EXPECT_EQ(barren(1).delay, base::Milliseconds(100));
  EXPECT_EQ(barren(1).delay, base::Milliseconds(1000));
  EXPECT_EQ(barren(1).delay, base::Milliseconds(1000));
}

TEST_F(RestartPolicyTest, ADeathAfterServiceIsRestartedAtOnceHoweverMany) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(served(1).delay, base::Milliseconds(0));
    EXPECT_FALSE(served(1).quarantined);
  }
}

TEST_F(RestartPolicyTest, ADeathAfterServiceForgivesTheBarrenOnes) {
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(barren(1).quarantined);
  served(1);
  EXPECT_EQ(policy_.barrenDeathsInARow(), 0u);
  EXPECT_EQ(barren(1).delay, base::Milliseconds(0));
}

TEST_F(RestartPolicyTest, QuarantinesAtTheLimitWithinTheWindow) {
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(barren(1000).quarantined);
  const auto tenth = barren(1000);
  EXPECT_TRUE(tenth.quarantined);
  EXPECT_EQ(tenth.delay, base::Milliseconds(60'000));
  EXPECT_EQ(policy_.barrenDeathsInARow(), 10u);
}

TEST_F(RestartPolicyTest, NeverQuarantinesWhatDiesMoreSeldom) {
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(barren(3400).quarantined);
}

TEST_F(RestartPolicyTest, AQuietWindowResetsTheBackOff) {
  barren(0);
  barren(1);
  EXPECT_EQ(barren(30'001).delay, base::Milliseconds(0));
}

TEST_F(RestartPolicyTest, AfterAQuarantineComesOneMoreTry) {
  for (int i = 0; i < 10; ++i) barren(1);
  EXPECT_TRUE(barren(60'001).quarantined);
  served(60'001);
  EXPECT_FALSE(barren(1).quarantined);
}

}  // namespace
}  // namespace isopool::supervisor
