// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace isopool::client {

using Clock = std::chrono::steady_clock;
/// None: no end.
using Deadline = std::optional<Clock::time_point>;

/// So long after now. None if no clock will ever show that.
inline Deadline deadlineAfter(std::chrono::nanoseconds time) {
  const Clock::time_point now = Clock::now();
  if (time > Clock::time_point::max() - now) return std::nullopt;
  return now + std::max(time, std::chrono::nanoseconds(0));
}

inline bool isPast(const Deadline& deadline) { return deadline && Clock::now() >= *deadline; }

}  // namespace isopool::client
