// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/zygote_policy.h"

#include <gtest/gtest.h>

namespace isopool::supervisor {
namespace {

using Loss = ZygotePolicy::Loss;
using Verdict = ZygotePolicy::Verdict;

TEST(ZygotePolicy, GivesUpIfNoneWasEverReady) {
  ZygotePolicy policy;
  EXPECT_EQ(policy.lost({}).verdict, Verdict::kGiveUp);
}

TEST(ZygotePolicy, ReplacesTheFirstOneThatASignalStopped) {
  ZygotePolicy policy;
  EXPECT_EQ(policy.lost({}, Loss::kStopped).verdict, Verdict::kRetry);
  EXPECT_EQ(policy.lost({}).verdict, Verdict::kGiveUp);
}

TEST(ZygotePolicy, ReplacesOneThatServedAtOnce) {
  ZygotePolicy policy;
  policy.ready();
  for (int i = 0; i < 20; ++i) {
    policy.forked();
    const auto decision = policy.lost({});
    EXPECT_EQ(decision.verdict, Verdict::kRetry);
    EXPECT_EQ(decision.delay, base::Milliseconds(0));
  }
  EXPECT_FALSE(policy.struggling());
}

TEST(ZygotePolicy, ReportsTheThirdFailureInARowAndKeepsRetrying) {
  ZygotePolicy policy;
  policy.ready();
  EXPECT_EQ(policy.lost({}).verdict, Verdict::kRetry);
  EXPECT_EQ(policy.lost({}).verdict, Verdict::kRetry);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(policy.lost({}).verdict, Verdict::kRetryAndReport);
  EXPECT_EQ(policy.lost({}).delay, base::Milliseconds(1000));
  EXPECT_TRUE(policy.struggling());
  policy.ready();
  policy.forked();
  EXPECT_FALSE(policy.struggling());
}

}  // namespace
}  // namespace isopool::supervisor
