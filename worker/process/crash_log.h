// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string_view>

namespace isopool::worker {

/// The memory object that keeps what a worker last said on its error stream, for whoever reports
/// its death. Everybody appends; the file ends with the newest, and of what is older than
/// kCrashLogBytes the pages are given back (a hole at the file's front), so a reader reads only
/// the end.
inline constexpr size_t kCrashLogBytes = 64 * 1024;

/// Makes `fd` this process's crash log, appended to from now on, and installs a terminate handler
/// that tells the exception there and on the error stream.
void keepCrashLog(int fd);

/// The descriptor, or -1 (in the zygote).
int crashLogFd();

/// Appends. Async-signal-safe; never fails aloud.
void appendToCrashLog(std::string_view text) noexcept;

/// Tells a person: the error stream and the crash log.
void logError(std::string_view text) noexcept;

}  // namespace isopool::worker
