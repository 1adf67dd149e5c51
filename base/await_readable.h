// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace isopool::base {

/// For awaitReadable(): no time-out.
inline constexpr std::chrono::milliseconds kForever = std::chrono::milliseconds::max();

/// Waits until `fd` has something to read, its other end is closed, or (for a pidfd) its process is
/// dead. False if none of this happened within `timeout` (kForever: waits without limit) or if `fd`
/// can't be polled. A signal handler that runs meanwhile does not shorten the wait. Any thread may
/// call it.
bool awaitReadable(int fd, std::chrono::milliseconds timeout) noexcept;

}  // namespace isopool::base
