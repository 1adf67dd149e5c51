// SPDX-License-Identifier: BSD-3-Clause
// Steps CLOCK_REALTIME by up to a day, forwards or back, for the target's processes only: see
// chaos/clock_step.cc.
#include "chaos/nemesis/nemesis.h"

namespace chaos {

void Nemesis::stepClock(const Attack& attack) {
  target_.setClockAhead(attack.choice % 2 == 0 ? attack.length : -attack.length);
  later(std::chrono::milliseconds(500), [this] { target_.setClockAhead({}); });
  ++counts_.byFamily[static_cast<size_t>(attack.family)];
}

}  // namespace chaos
