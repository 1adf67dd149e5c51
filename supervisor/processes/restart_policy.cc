// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/restart_policy.h"

#include <algorithm>
#include <array>

namespace isopool::supervisor {

namespace {

constexpr std::array<base::Milliseconds, 4> kBackOff{base::Milliseconds(0), base::Milliseconds(10),
                                                     base::Milliseconds(100),
                                                     base::Milliseconds(1000)};

}  // namespace

RestartPolicy::Decision RestartPolicy::died(ExitKind death, base::TimePoint now) {
  if (death == ExitKind::kOfClient) return {};
  if (death == ExitKind::kAfterCall) {
    earlyExits_.clear();
    inARow_ = 0;
    onProbation_ = false;
    return {};
  }
  while (!earlyExits_.empty() && now - earlyExits_.front() > limits_.window)
    earlyExits_.pop_front();
  if (earlyExits_.empty() && !onProbation_) inARow_ = 0;
  earlyExits_.push_back(now);
  ++inARow_;
  if (onProbation_ || earlyExits_.size() >= limits_.deaths) {
    earlyExits_.clear();
    onProbation_ = true;
    return {.delay = limits_.quarantine, .quarantined = true};
  }
  return {.delay = kBackOff[std::min<size_t>(inARow_, kBackOff.size()) - 1]};
}

}  // namespace isopool::supervisor
