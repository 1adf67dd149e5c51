// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace isopool::base {

/// For awaitReadable(): a wait without an end.
inline constexpr std::chrono::milliseconds kForever = std::chrono::milliseconds::max();

/// Waits until there is something to read at `fd`, or its other end or the process that it stands
/// for is gone. False if that did not happen within `timeout` (kForever: it waits as long as it
/// takes), or cannot be asked. A signal handler that runs meanwhile does not shorten the wait. Any
/// thread.
bool awaitReadable(int fd, std::chrono::milliseconds timeout) noexcept;

}  // namespace isopool::base
