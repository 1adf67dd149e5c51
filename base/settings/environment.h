// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <stdexcept>

#include "base/settings/setting_table.h"

namespace isopool::base {

/// A variable has a value that its setting can't have: "NAME=TEXT: 'TEXT' is not 1 or 0".
class SettingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// getenv(3), or a test's own variables. Null for a variable that is not set.
using Environment = std::function<const char*(const char* name)>;

/// The text of a setting's variable; null if it is not set or empty.
const char* textInEnvironment(const Setting& setting, const Environment& environment);
const char* textInEnvironment(const Setting& setting);

/// The value of the setting with this variable, or its default where the variable is not set or
/// empty. Throws SettingError. A variable that no setting has is a mistake in the program
/// (std::logic_error).
SettingValue settingInEnvironment(std::string_view variable, const Environment& environment);
SettingValue settingInEnvironment(std::string_view variable);

}  // namespace isopool::base
