// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>

#include "base/clock.h"

namespace isopool::supervisor {

/// After `deaths` early deaths within `window`, a place stays empty for `quarantine`.
struct RestartLimits {
  uint32_t deaths = 10;
  base::Milliseconds window{30'000};
  base::Milliseconds quarantine{30'000};
};

/// How a process ended: kBeforeFirstCall is an early death, of a worker that has completed no call
/// or a zygote that has forked no worker; kOfClient is one of a worker that a client's code has
/// ended before the worker completed a call. Only kBeforeFirstCall counts against the place.
enum class ExitKind { kBeforeFirstCall, kAfterCall, kOfClient };

/// Decides when a place (of a slot, a spare or the zygote) gets its next process, and when a client
/// gets its next worker. After a death that is not early: at once, always. After one of kOfClient:
/// at once, and the deaths before it still count. After early deaths in a row: at once, then after
/// 10 ms, 100 ms, 1 s, and after each further one 1 s, until RestartLimits demand a quarantine.
/// Pure: the caller passes the time, which must not decrease.
class RestartPolicy {
 public:
  struct Decision {
    base::Milliseconds delay{0};
    bool quarantined = false;  ///< the delay is a quarantine, which the caller reports
  };

  explicit RestartPolicy(const RestartLimits& limits) : limits_(limits) {}

  /// The place's process has died. Returns after which delay the next one is started. After a
  /// quarantine one early death is enough for the next quarantine.
  Decision died(ExitKind death, base::TimePoint now);

  /// Early deaths since the last death that was not early, or since a window without any.
  uint32_t earlyExitsInARow() const { return inARow_; }

 private:
  RestartLimits limits_;
  std::deque<base::TimePoint> earlyExits_;
  uint32_t inARow_ = 0;
  bool onProbation_ = false;  ///< there was a quarantine: the next early death starts another
};

}  // namespace isopool::supervisor
