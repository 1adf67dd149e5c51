// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace isopool::base {

/// A time of the monotonic clock, and a span of it.
using TimePoint = std::chrono::steady_clock::time_point;
using Milliseconds = std::chrono::milliseconds;

}  // namespace isopool::base
