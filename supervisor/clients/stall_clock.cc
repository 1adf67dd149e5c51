// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/clients/stall_clock.h"

#include <utility>

namespace isopool::supervisor {

base::Milliseconds StallClock::look(base::TimePoint now, uint64_t queued, uint64_t completed) {
  const bool goesOn = std::exchange(completed_, completed) != completed;
  const bool unknown = !looked_ || now - *looked_ > kLongestGap;
  looked_ = now;
  if (queued == 0 || goesOn || unknown) since_ = now;
  return std::chrono::duration_cast<base::Milliseconds>(now - since_);
}

}  // namespace isopool::supervisor
