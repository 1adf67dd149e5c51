// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/group_totals.h"

#include <algorithm>
#include <string_view>

namespace isopool::supervisor {

namespace {

// A call takes about a microsecond at least. The addition is for times that round to zero.
constexpr uint64_t kMostCallsPerMillisecond = 10'000;
constexpr uint64_t kMostCallsBeforeThat = 10'000;
constexpr uint64_t kMostTimesInMessage = 1'000'000'000;
constexpr size_t kMostRecent = 1000;

}  // namespace

void GroupTotals::advance(base::Epoch epoch, uint64_t calls, base::Milliseconds processorTime,
                          base::Milliseconds age) {
  const uint64_t lived = static_cast<uint64_t>(std::max<int64_t>(age.count(), 0));
  const uint64_t believed =
      std::min(calls, lived * kMostCallsPerMillisecond + kMostCallsBeforeThat);
  Counted& counted = counted_[epoch];
  if (believed > counted.calls) {
    calls_ += believed - counted.calls;
    counted.calls = believed;
  }
  if (processorTime > counted.processorTime) {
    processorTime_ += processorTime - counted.processorTime;
    counted.processorTime = processorTime;
  }
}

void GroupTotals::countStart(base::Milliseconds took) {
  const auto& bounds = Starts::kBounds;
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), took) - bounds.begin();
  ++starts_.counts[static_cast<size_t>(bucket)];
  starts_.sum += took;
}

void GroupTotals::countDeath(DeathCause cause, base::TimePoint now) {
  ++deaths_.at(static_cast<size_t>(cause));
  recent_.push_back(now);
  if (recent_.size() > kMostRecent) recent_.pop_front();
}

uint64_t GroupTotals::recentDeaths(base::TimePoint now) const {
  return static_cast<uint64_t>(std::count_if(
      recent_.begin(), recent_.end(), [now](base::TimePoint at) { return now - at <= kRecent; }));
}

void GroupTotals::countDenial(const std::string& act, uint64_t times) {
  const std::string_view text(act);
  const char* kind = text.starts_with("file ")          ? "file"
                     : text.starts_with("system call ") ? "system_call"
                                                        : "other";
  denials_[kind] += std::min(times, kMostTimesInMessage);
}

}  // namespace isopool::supervisor
