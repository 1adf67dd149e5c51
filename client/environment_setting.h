// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>

/// Settings that this program reads from its environment. `variable` is one of
/// base/settings/setting_table.cc, which has the default. Each throws Error that names the variable
/// if it has a value that it can't have. Thread-safe as getenv(3).
namespace isopool::client {

/// In bytes.
uint64_t sizeSetting(const char* variable);
std::chrono::milliseconds timeSetting(const char* variable);
bool switchSetting(const char* variable);

}  // namespace isopool::client
