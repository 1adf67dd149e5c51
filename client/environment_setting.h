// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace isopool::client {

/// A size from an environment variable, such as 4GiB, 512MiB or plain bytes; `fallback` if it is not
/// set. Throws Error naming the variable if it is set to something else.
uint64_t sizeSetting(const char* variable, uint64_t fallback);

/// A time from an environment variable, such as 500ms, 30s, 2m, 1h or plain seconds; `fallback` if it
/// is not set. Throws Error naming the variable if it is set to something else.
std::chrono::milliseconds timeSetting(const char* variable, std::chrono::milliseconds fallback);

/// True if the variable is set to 1, true, yes or on. Throws Error if it is none of those nor their
/// opposites.
bool switchSetting(const char* variable, bool fallback);

}  // namespace isopool::client
