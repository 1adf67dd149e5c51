// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/settings/setting_table.h"

/// How the values of settings are written, and the error messages for wrong ones. All functions are
/// pure; any thread may call them.
namespace isopool::base {

/// The value of a flag's or variable's text, or the error message: "'x' is not ...".
std::variant<SettingValue, std::string> parseSetting(const Setting& setting, std::string_view text);

/// The shortest text that parseSetting() turns into this value.
std::string spellSetting(const Setting& setting, const SettingValue& value);

/// Describes the values that a setting may have: "a whole number between 1 and 64", "none, default
/// or strict".
std::string describeValues(const Setting& setting);

/// The element of `words` (not empty) that is nearest to a mistyped word. The words are keys of
/// settings: a key that differs only in its table counts as near.
std::string nearestOf(std::string_view word, const std::vector<std::string>& words);

/// The error message for an environment variable whose name begins with ISOPOOL_ but which isopool
/// does not read: "is not a setting; the nearest is ...". Empty for every other variable.
std::string whyNoVariable(std::string_view name);

}  // namespace isopool::base
