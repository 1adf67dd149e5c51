// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string_view>

namespace isopool::worker {

/// How many bytes a crash log keeps. The crash log of a worker is a memory object with the last
/// lines of its error stream, for the process that reports its death. All writers append, so the
/// newest text is at the end. Pages with text older than kCrashLogBytes are returned to the system
/// (a hole at the file's front): readers read only the end.
inline constexpr size_t kCrashLogBytes = 64 * 1024;

/// Makes `fd` this process's crash log and installs a terminate handler that logs the uncaught
/// exception there and on stderr before it aborts. The caller keeps `fd` open for the life of the
/// process. Call once, before other threads exist.
void keepCrashLog(int fd);

/// The descriptor of the crash log; -1 before keepCrashLog(), as in the zygote.
int crashLogFd();

/// Appends to the crash log; does nothing if there is none. Async-signal-safe; ignores
/// errors. Any thread.
void appendToCrashLog(std::string_view text) noexcept;

/// Logs to stderr and to the crash log. Async-signal-safe; ignores errors. Any thread.
void logError(std::string_view text) noexcept;

}  // namespace isopool::worker
