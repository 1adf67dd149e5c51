// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "base/settings/setting_table.h"
#include "supervisor/config/options.h"

namespace isopool::supervisor {

/// Stores the value of the setting `key` in its field of `options`. Returns false if `options` has
/// no such field: workers or programs read that setting, not the supervisor. `value` has been
/// checked (base::parseSetting()); an unknown choice becomes a default.
bool setOption(Options& options, std::string_view key, const base::SettingValue& value);

}  // namespace isopool::supervisor
