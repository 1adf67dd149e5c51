// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <string>

#include "isopool/observation.h"

namespace isopool::client {

extern std::atomic<bool> loggerIsSet;

/// Passes an event to the program's logger; does nothing if there is none. Call it without a lock
/// that a logger could need. Exceptions of the logger are ignored. Any thread.
void logToProgram(LogLevel level, const std::string& text) noexcept;

/// The same; calls `makeText` only if there is a logger.
template <typename MakeText>
void logEvent(LogLevel level, MakeText&& makeText) {
  if (loggerIsSet.load(std::memory_order_relaxed)) logToProgram(level, makeText());
}

}  // namespace isopool::client
