// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/settings/setting_table.h"
#include "supervisor/config/options.h"

namespace isopool::supervisor {

/// What a settings file (TOML) says, checked against the table of settings.
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
    std::string user;  ///< as it is written there
    uint32_t line = 0;
  };

  std::map<const base::Setting*, Entry> entries;
  std::vector<Variable> environment;  ///< [environment]
  std::vector<Class> classes;         ///< [class.NAME], in the file's order
};

/// The contents of the file, or one line that says where and what is wrong with it, and what would
/// be right. Reads the user database for the users that classes name.
std::variant<SettingsFile, std::string> readSettingsFile(const std::string& path);

}  // namespace isopool::supervisor
