// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/settings/setting_table.h"

/// How values of settings are written, and what is said about those that are written wrongly.
namespace isopool::base {

/// What the text of a flag or variable means, or why it means nothing: "'x' is not ...".
std::variant<SettingValue, std::string> parseSetting(const Setting& setting, std::string_view text);

/// A text that parseSetting() takes for the same value, in its shortest form.
std::string spellSetting(const Setting& setting, const SettingValue& value);

/// What values it may have: "a whole number between 1 and 64", "none, default or strict".
std::string describeValues(const Setting& setting);

/// The one of `words`, which must not be empty, that a mistyped word is nearest to. Words are keys:
/// one that is right but for its table is near.
std::string nearestOf(std::string_view word, const std::vector<std::string>& words);

/// Why a variable whose name begins with ISOPOOL_ means nothing to isopool: "is no setting; the
/// nearest is ...". Empty if it means something, or has another name.
std::string whyNoVariable(std::string_view name);

}  // namespace isopool::base
