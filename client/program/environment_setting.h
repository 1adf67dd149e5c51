// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>

/// Settings that this program reads from its environment. `variable` is one of
/// base/settings/setting_table.cc, which has the defaults. Each call reads the environment again.
/// Each function throws Error, which names the variable, if the variable's value is invalid.
/// Thread-safe as getenv(3).
namespace isopool::client {

/// In bytes.
uint64_t sizeSetting(const char* variable);
std::chrono::milliseconds timeSetting(const char* variable);
bool switchSetting(const char* variable);

}  // namespace isopool::client
