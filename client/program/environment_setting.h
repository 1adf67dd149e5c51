// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace isopool::client {

/// The number of a setting of this process (bytes, for a size) that it reads from its environment:
/// the value of `variable` or the default, both as in base/settings/setting_table.cc. Each call
/// reads the environment again. Throws Error, which names the variable, if its value is invalid.
/// Thread-safe as getenv(3). Settings of one pool are in client/control/pool_settings.h.
uint64_t numberSetting(const char* variable);

}  // namespace isopool::client
