// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>

#include "base/clock.h"

namespace isopool::supervisor {

struct RestartLimits {
  uint32_t deaths = 10;                   ///< so many early deaths ...
  base::Milliseconds window{30'000};      ///< ... within this time ...
  base::Milliseconds quarantine{30'000};  ///< ... and nothing is restarted for so long
};

/// How a process ended that ran in one place: a worker that completed no call, a zygote that forked
/// no worker, is a early death. Only those are held against the place.
enum class ExitKind { kBeforeFirstCall, kAfterCall };

/// Decides when a place (a slot of a pool, the spare's, the zygote's) gets its next process. Pure:
/// the caller brings the time. Deaths after service are restarted at once, always.
class RestartPolicy {
 public:
  struct Decision {
    base::Milliseconds delay{0};
    bool quarantined = false;  ///< the delay is a quarantine, to be reported
  };

  explicit RestartPolicy(const RestartLimits& limits) : limits_(limits) {}

  Decision died(ExitKind death, base::TimePoint now);

  /// Barren deaths since the last process that served (or since a quiet window).
  uint32_t earlyExitsInARow() const { return inARow_; }

 private:
  RestartLimits limits_;
  std::deque<base::TimePoint> earlyExits_;
  uint32_t inARow_ = 0;
  bool onProbation_ = false;  ///< a quarantine is over: one more early death is one too many
};

}  // namespace isopool::supervisor
