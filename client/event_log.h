// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <string>

#include "isopool/observation.h"

namespace isopool::client {

extern std::atomic<bool> loggerIsSet;

/// Gives an event to the program's logger. With no lock held that a logger could want.
void logToProgram(LogLevel level, const std::string& text) noexcept;

/// The same, and the text is only made if there is a logger.
template <typename MakeText>
void logEvent(LogLevel level, MakeText&& makeText) {
  if (loggerIsSet.load(std::memory_order_relaxed)) logToProgram(level, makeText());
}

}  // namespace isopool::client
