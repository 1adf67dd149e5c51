// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace isopool::supervisor {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Lets lines of at least the level that ISOPOOL_LOG names (debug, info, warning, error, off) reach
/// the error stream; warning without it. Returns false if it is set and names no level.
bool startLog();

/// Writes one line to the error stream. Never blocks: while nobody reads the stream, lines are
/// dropped.
void log(LogLevel level, std::string_view text);

}  // namespace isopool::supervisor
