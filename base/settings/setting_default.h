// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "base/settings/setting_table.h"

namespace isopool::base {

/// The setting's `fallback` as a value; an empty value if it has none. Pure.
SettingValue writtenDefault(const Setting& setting);

/// The value that a setting has on this system if it is not set: as writtenDefault(), but a size
/// with `memoryParts` is at most that part of usableMemory(). Any thread.
SettingValue defaultOf(const Setting& setting);
/// The same where this process may use `memory` bytes. Pure.
SettingValue defaultOf(const Setting& setting, uint64_t memory);

}  // namespace isopool::base
