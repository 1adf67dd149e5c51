// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <stdexcept>

#include "base/settings/setting_table.h"

namespace isopool::base {

/// An environment variable has a value that is invalid for its setting:
/// "NAME=TEXT: 'TEXT' is neither 1 (true, yes, on) nor 0 (false, no, off)".
class SettingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Looks up a variable: getenv(3), or a test's replacement. Null for a variable that is not set.
using Environment = std::function<const char*(const char* name)>;

/// The setting with this variable. Throws std::logic_error if there is none: that is a bug in the
/// program.
const Setting& settingOfVariable(std::string_view variable);

/// The text of a setting's variable, which the environment owns. Null if the variable is not set or
/// is empty.
const char* textInEnvironment(const Setting& setting, const Environment& environment);
const char* textInEnvironment(const Setting& setting);

/// The value of the setting with this variable, or defaultOf() it if the variable is not set or
/// empty. Throws SettingError if the text is invalid, and as
/// settingOfVariable().
SettingValue settingInEnvironment(std::string_view variable, const Environment& environment);
SettingValue settingInEnvironment(std::string_view variable);

}  // namespace isopool::base
