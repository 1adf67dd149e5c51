// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace isopool::client {

/// CLOCK_MONOTONIC: does not count the time in which the machine is suspended.
using Clock = std::chrono::steady_clock;
/// When a call ends at the latest; empty: without limit.
using Deadline = std::optional<Clock::time_point>;

/// Now plus `time`, not earlier than now; empty if the clock can't represent it.
inline Deadline deadlineAfter(std::chrono::nanoseconds time) {
  const Clock::time_point now = Clock::now();
  if (time > Clock::time_point::max() - now) return std::nullopt;
  return now + std::max(time, std::chrono::nanoseconds(0));
}

/// Reads the clock only if there is a deadline.
inline bool isPast(const Deadline& deadline) { return deadline && Clock::now() >= *deadline; }

}  // namespace isopool::client
