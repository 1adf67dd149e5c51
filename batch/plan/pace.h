// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace isopool::batch {

/// How many items one step to a worker has: so many that it takes a fifth of a second. A step costs
/// 0.2 to 0.4 ms, because both sides fall asleep meanwhile; long ones delay progress and Ctrl-C.
/// Pure: times are given. Not thread-safe.
class Pace {
 public:
  using Seconds = std::chrono::duration<double>;
  static constexpr Seconds kLongestStep{0.2};

  /// `step`: how long a step should take.
  explicit Pace(Seconds step) : step_(step) {}

  /// Items of the next step, at least one.
  uint32_t items() const { return items_; }
  Seconds step() const { return step_; }

  /// A step with these items took so long.
  void add(uint32_t items, Seconds time) {
    const double each = std::max(time.count(), 1e-9) / items;
    const double fitting = std::min(step_.count() / each, double{kMostItems});
    // Grows slowly: the next items may take longer than these.
    items_ = static_cast<uint32_t>(std::clamp(fitting, 1.0, items_ * kGrowth));
  }

 private:
  static constexpr double kGrowth = 4;
  static constexpr uint32_t kMostItems = 4096;

  const Seconds step_;
  uint32_t items_ = 1;
};

}  // namespace isopool::batch
