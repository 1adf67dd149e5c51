// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/zygote_policy.h"

#include <limits>
#include <utility>

namespace isopool::supervisor {

namespace {

constexpr uint32_t kPatience = 3;
// Once a zygote has been ready, restarts never stop: back-off, but no quarantine.
constexpr RestartLimits kNoQuarantine{std::numeric_limits<uint32_t>::max(),
                                      base::Milliseconds(30'000), base::Milliseconds(0)};

}  // namespace

ZygotePolicy::ZygotePolicy() : restarts_(kNoQuarantine) {}

ZygotePolicy::Decision ZygotePolicy::lost(base::TimePoint now, Loss loss) {
  if (!everReady_ && loss != Loss::kStopped) return {Verdict::kGiveUp, base::Milliseconds(0)};
  const bool served = std::exchange(forked_, false);
  const auto decision =
      restarts_.died(served ? ExitKind::kAfterCall : ExitKind::kBeforeFirstCall, now);
  struggling_ = restarts_.earlyExitsInARow() >= kPatience;
  return {struggling_ ? Verdict::kRetryAndReport : Verdict::kRetry, decision.delay};
}

}  // namespace isopool::supervisor
