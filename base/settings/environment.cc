// SPDX-License-Identifier: BSD-3-Clause
#include "base/settings/environment.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

#include "base/settings/setting_default.h"
#include "base/settings/setting_text.h"

namespace isopool::base {

const Setting& settingOfVariable(std::string_view variable) {
  const auto table = settingTable();
  const auto setting = std::find_if(table.begin(), table.end(),
                                    [&](const Setting& each) { return each.variable == variable; });
  if (setting == table.end()) {
    throw std::logic_error("no setting has the variable " + std::string(variable));
  }
  return *setting;
}

const char* textInEnvironment(const Setting& setting, const Environment& environment) {
  const char* text = environment(std::string(setting.variable).c_str());
  return text != nullptr && *text != '\0' ? text : nullptr;
}

const char* textInEnvironment(const Setting& setting) {
  return textInEnvironment(setting, ::getenv);
}

SettingValue settingInEnvironment(std::string_view variable, const Environment& environment) {
  const Setting& setting = settingOfVariable(variable);
  const char* text = textInEnvironment(setting, environment);
  if (text == nullptr) return defaultOf(setting);
  auto parsed = parseSetting(setting, text);
  if (const auto* problem = std::get_if<std::string>(&parsed)) {
    throw SettingError(std::string(variable) + "=" + text + ": " + *problem);
  }
  return std::move(std::get<SettingValue>(parsed));
}

SettingValue settingInEnvironment(std::string_view variable) {
  return settingInEnvironment(variable, ::getenv);
}

}  // namespace isopool::base
