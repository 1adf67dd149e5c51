// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace isopool::base {

/// Limits the lines of one kind that another process can cause without end, so that they hide no
/// other line and fill no disk: ten in a row, and from then on one a second, with the number of
/// those that were left out. After ten seconds without one, again ten in a row. Not thread-safe.
class LineRate {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Nothing: the line is left out. Else what to append to it, mostly an empty text.
  std::optional<std::string> next(TimePoint now) {
    const TimePoint before = std::exchange(last_, now);
    if (now - before >= kRest) inARow_ = 0;
    if (inARow_ >= kMost && now - logged_ < kBetween) {
      ++leftOut_;
      return std::nullopt;
    }
    ++inARow_;
    logged_ = now;
    const uint64_t leftOut = std::exchange(leftOut_, 0);
    if (leftOut == 0) return std::string();
    return " (" + std::to_string(leftOut) + " lines like this one were left out before)";
  }

 private:
  static constexpr int kMost = 10;
  static constexpr std::chrono::seconds kBetween{1};
  static constexpr std::chrono::seconds kRest{10};

  TimePoint last_;
  TimePoint logged_;
  int inARow_ = 0;
  uint64_t leftOut_ = 0;
};

}  // namespace isopool::base
