// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/settings/setting_table.h"
#include "supervisor/config/options.h"

namespace isopool::supervisor {

/// The contents of a settings file (TOML), checked against the table of settings.
struct SettingsFile {
  struct Entry {
    base::SettingValue value;
    uint32_t line = 0;
  };
  struct Variable {
    std::string name;
    std::string value;
    uint32_t line = 0;
  };
  struct Class {
    ClientClass clientClass;
    std::string user;  ///< as in the file
    uint32_t line = 0;
  };

  std::map<const base::Setting*, Entry> entries;  ///< only what the file sets; values are checked
  std::vector<Variable> environment;              ///< [environment]
  std::vector<Class> classes;                     ///< [class.NAME], in the file's order
};

/// Returns the contents of the file, or one line with the place of the error, the error, and a
/// correct value. An unknown key is an error. Reads the user database for the users that classes
/// name.
std::variant<SettingsFile, std::string> readSettingsFile(const std::string& path);

}  // namespace isopool::supervisor
