// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/output_quota.h"

namespace isopool::supervisor {

namespace {

constexpr std::chrono::hours kHour(1);

}  // namespace

// Hours are counted from the first one, whether anything is printed in them or not.
void OutputQuota::begin(base::TimePoint now) {
  const auto passed = (now - began_) / kHour;
  if (passed <= 0) return;
  began_ += passed * kHour;
  hour_ += static_cast<uint64_t>(passed);
  used_ = 0;
}

bool OutputQuota::allows(Share& share, base::TimePoint now) {
  begin(now);
  if (share.hour != hour_) share = {hour_, 0};
  return limit_ == 0 || used_ + share.bytes < limit_;
}

void OutputQuota::charge(Share& share, uint64_t bytes) {
  used_ += bytes;
  share.bytes += bytes;
}

base::Milliseconds OutputQuota::leftOfHour(base::TimePoint now) const {
  return std::chrono::duration_cast<base::Milliseconds>(began_ + kHour - now);
}

}  // namespace isopool::supervisor
