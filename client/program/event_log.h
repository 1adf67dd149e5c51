// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <string>

#include "isopool/observation.h"

namespace isopool::client {

/// True if the program has set a logger, so that texts are not made in vain.
extern std::atomic<bool> loggerIsSet;

/// Passes an event to the program's logger on the calling thread; does nothing if there is none.
/// The logger may take any time. Call it without a lock that a logger could need. Exceptions of the
/// logger are ignored. Any thread, also in a forked child, which inherits the logger.
void logToProgram(LogLevel level, const std::string& text) noexcept;

/// The same; calls `makeText` only if there is a logger. Throws what `makeText` throws.
template <typename MakeText>
void logEvent(LogLevel level, MakeText&& makeText) {
  if (loggerIsSet.load(std::memory_order_relaxed)) logToProgram(level, makeText());
}

}  // namespace isopool::client
