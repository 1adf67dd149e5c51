// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace isopool::supervisor {

/// For how long calls of a client have been queued while none of its calls completed. It knows only
/// what it is given, when a report is made: between two reports further apart than kLongestGap
/// anything may have happened, so the time begins again.
class StallClock {
 public:
  static constexpr base::Milliseconds kLongestGap{300'000};

  /// `completed`: calls of the client since it attached.
  base::Milliseconds look(base::TimePoint now, uint64_t queued, uint64_t completed);

 private:
  base::TimePoint since_;
  std::optional<base::TimePoint> looked_;
  uint64_t completed_ = 0;
};

}  // namespace isopool::supervisor
