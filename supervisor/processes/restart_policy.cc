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

RestartPolicy::Decision RestartPolicy::died(Death death, base::TimePoint now) {
  if (death == Death::kAfterService) {
    barren_.clear();
    inARow_ = 0;
    onProbation_ = false;
    return {};
  }
  while (!barren_.empty() && now - barren_.front() > limits_.window) barren_.pop_front();
  if (barren_.empty() && !onProbation_) inARow_ = 0;
  barren_.push_back(now);
  ++inARow_;
  if (onProbation_ || barren_.size() >= limits_.deaths) {
    barren_.clear();
    onProbation_ = true;
    return {limits_.quarantine, true};
  }
  return {kBackOff[std::min<size_t>(inARow_, kBackOff.size()) - 1], false};
}

}  // namespace isopool::supervisor
