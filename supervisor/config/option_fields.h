// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "base/settings/setting_table.h"
#include "supervisor/config/options.h"

namespace isopool::supervisor {

/// Stores the value of the setting `key` in its field of `options`. False if no field belongs to
/// it: workers or programs read it, not the supervisor.
bool setOption(Options& options, std::string_view key, const base::SettingValue& value);

}  // namespace isopool::supervisor
