// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/config/settings_file.h"

#include <pwd.h>
#include <toml++/toml.h>

#include <algorithm>
#include <stdexcept>

#include "base/regular_file.h"
#include "base/settings/setting_text.h"
#include "ipc/control/operator_messages.h"
#include "ipc/thread_variables.h"

namespace isopool::supervisor {

namespace {

constexpr uint32_t kMostShare = 1000;
constexpr uint64_t kMostBytes = uint64_t{16} << 20;
constexpr uint32_t kMostDedicatedWorkers = 1024;

class SettingsError : public std::runtime_error {
 public:
  SettingsError(const toml::source_region& where, const std::string& what)
      : std::runtime_error(std::to_string(where.begin.line) + ": " + what) {}
};

std::string described(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  if (node.is_boolean()) return node.ref<bool>() ? "true" : "false";
  if (node.is_integer()) return std::to_string(node.ref<int64_t>());
  if (node.is_string()) return "'" + node.ref<std::string>() + "'";
  return node.is_floating_point() ? "a number with a fraction" : "a date";
}

// Of a value that is written without quotes. In quotes it reads like one that is right.
std::string whyNo(const std::string& expected, const toml::node& node) {
  if (!node.is_string()) return described(node) + " is not " + expected;
  return described(node) + " is a text, because it is in quotes, and not " + expected;
}

/// Reads one file's tables into a SettingsFile. Throws SettingsError.
class Reader {
 public:
  SettingsFile read(const toml::table& root) {
    readTable(root, "");
    return std::move(file_);
  }

 private:
  void readTable(const toml::table& table, const std::string& prefix) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      if (key == "environment") {
        readEnvironment(tableAt(key, node));
      } else if (key == "class") {
        readClasses(tableAt(key, node));
      } else if (const base::Setting* setting = base::findSetting(key)) {
        file_.entries[setting] = {valueOf(*setting, node), node.source().begin.line};
      } else if (isTable(key)) {
        readTable(tableAt(key, node), key + ".");
      } else {
        throw SettingsError(name.source(), unknown(key));
      }
    }
  }

  static bool isTable(const std::string& key) {
    return std::any_of(base::settingTable().begin(), base::settingTable().end(),
                       [&](const base::Setting& each) { return each.key.starts_with(key + "."); });
  }

  static const toml::table& tableAt(const std::string& key, const toml::node& node) {
    if (const toml::table* table = node.as_table()) return *table;
    throw SettingsError(node.source(),
                        key + " is " + described(node) + ", but [" + key + "] must be a table");
  }

  static std::string unknown(const std::string& key) {
    std::vector<std::string> keys{"environment", "class"};
    for (const base::Setting& setting : base::settingTable()) {
      if (setting.key.empty()) continue;
      keys.emplace_back(setting.key);
      keys.emplace_back(setting.key.substr(0, setting.key.find('.')));
    }
    return key + " is not a setting; the nearest is " + base::nearestOf(key, keys);
  }

  static base::SettingValue valueOf(const base::Setting& setting, const toml::node& node) {
    const auto wrong = [&](const std::string& what) {
      return SettingsError(node.source(), std::string(setting.key) + ": " + what);
    };
    if (setting.kind == base::SettingKind::kList) return listOf(setting, node);
    const auto parsed = base::parseSetting(setting, textOf(setting, node));
    if (const auto* problem = std::get_if<std::string>(&parsed)) throw wrong(*problem);
    return std::get<base::SettingValue>(parsed);
  }

  static std::string textOf(const base::Setting& setting, const toml::node& node) {
    const bool isSwitch = setting.kind == base::SettingKind::kSwitch;
    const bool isQuantity = setting.kind == base::SettingKind::kCount ||
                            setting.kind == base::SettingKind::kSize ||
                            setting.kind == base::SettingKind::kTime;
    std::string text = node.value_exact<std::string>().value_or("");
    if (isSwitch && node.is_boolean()) return node.ref<bool>() ? "1" : "0";
    if (isQuantity && node.is_integer()) return std::to_string(node.ref<int64_t>());
    const bool isText = node.is_string() && !isSwitch && setting.kind != base::SettingKind::kCount;
    if (isText && !text.empty()) return text;
    if (isText) throw SettingsError(node.source(), std::string(setting.key) + ": '' is empty");
    throw SettingsError(node.source(),
                        std::string(setting.key) + ": " + whyNo(expected(setting), node));
  }

  static std::string expected(const base::Setting& setting) {
    switch (setting.kind) {
      case base::SettingKind::kSwitch:
        return "true or false";
      case base::SettingKind::kTime:
        return "a TIME like \"500ms\", \"30s\" or \"2m\"";
      case base::SettingKind::kSize:
        return "a SIZE like \"512KiB\", \"8MiB\" or \"1GiB\"";
      case base::SettingKind::kCount:
        return base::describeValues(setting);
      default:
        return base::describeValues(setting) + ", in quotes";
    }
  }

  static base::SettingValue listOf(const base::Setting& setting, const toml::node& node) {
    const toml::array* items = node.as_array();
    if (items == nullptr) {
      throw SettingsError(node.source(), std::string(setting.key) + ": " + described(node) +
                                             " is not a list like [\"one\", \"two\"]");
    }
    base::SettingValue value;
    for (const toml::node& item : *items) {
      const auto text = item.value_exact<std::string>();
      if (!text || text->empty() || text->find(setting.separator) != std::string::npos) {
        throw SettingsError(item.source(), std::string(setting.key) + ": " + described(item) +
                                               " is not a name without '" + setting.separator +
                                               "', in quotes");
      }
      value.items.push_back(*text);
    }
    return value;
  }

  void readEnvironment(const toml::table& table) {
    for (const auto& [name, node] : table) {
      const std::string variable(name.str());
      const auto wrong = [&, where = name.source()](const std::string& what) {
        return SettingsError(where, "environment." + variable + ": " + what);
      };
      if (variable.empty() || variable.find('=') != std::string::npos) {
        throw wrong("not the name of a variable");
      }
      for (const base::Setting& setting : base::settingTable()) {
        if (setting.variable != variable || setting.key.empty()) continue;
        throw wrong("is the setting " + std::string(setting.key) + " of this file");
      }
      if (const std::string problem = base::whyNoVariable(variable); !problem.empty())
        throw wrong(problem);
      if (std::find(ipc::kThreadVariables.begin(), ipc::kThreadVariables.end(), variable) !=
          ipc::kThreadVariables.end()) {
        throw wrong("follows the setting threads of this file");
      }
      if (node.is_integer()) {
        file_.environment.push_back(
            {variable, std::to_string(node.ref<int64_t>()), node.source().begin.line});
      } else if (const auto text = node.value_exact<std::string>()) {
        file_.environment.push_back({variable, *text, node.source().begin.line});
      } else {
        throw wrong(described(node) + " is not a text in quotes");
      }
    }
  }

  void readClasses(const toml::table& table) {
    for (const auto& [name, node] : table) {
      const std::string key = "class." + std::string(name.str());
      const std::string taken = whatHasTheName(name.str());
      if (!taken.empty()) {
        throw SettingsError(name.source(), key + ": '" + std::string(name.str()) +
                                               "' is the name of " + taken +
                                               "; give the class another name");
      }
      SettingsFile::Class made = classOf(key, tableAt(key, node));
      made.clientClass.name = name.str();
      made.line = name.source().begin.line;
      file_.classes.push_back(std::move(made));
    }
    // toml++ sorts by name, but the first class of the file that fits a client is the client's.
    std::sort(file_.classes.begin(), file_.classes.end(),
              [](const auto& left, const auto& right) { return left.line < right.line; });
  }

  /// Empty, or what reports and metrics call so. Names of classes stand beside it there.
  static std::string whatHasTheName(std::string_view name) {
    if (name == kSharedGroup) {
      return "the workers that serve all programs without dedicated workers";
    }
    return name == ipc::kNoClass ? "all programs without a class in the metrics" : "";
  }

  static SettingsFile::Class classOf(const std::string& key, const toml::table& table) {
    SettingsFile::Class made;
    for (const auto& [name, node] : table) {
      const std::string field(name.str());
      const std::string path = key + "." + field;
      if (field == "user") {
        made.user = node.is_integer() ? std::to_string(node.ref<int64_t>()) : textAt(path, node);
        made.clientClass.userId = userIdOf(path, made.user, node);
      } else if (field == "program") {
        made.clientClass.program = textAt(path, node);
      } else if (field == "share") {
        made.clientClass.share = countAt(path, node, 1, kMostShare);
      } else if (field == "dedicated_workers") {
        made.clientClass.dedicatedWorkers = countAt(path, node, 0, kMostDedicatedWorkers);
      } else if (field == "call_time") {
        made.clientClass.callTime = callTimeAt(path, node);
      } else {
        throw SettingsError(name.source(),
                            path + " is not a setting; the nearest is " + key + "." +
                                base::nearestOf(field, {"user", "program", "share",
                                                        "dedicated_workers", "call_time"}));
      }
    }
    return made;
  }

  static std::string textAt(const std::string& path, const toml::node& node) {
    const auto text = node.value_exact<std::string>();
    if (text && !text->empty()) return *text;
    throw SettingsError(node.source(), path + ": " + described(node) + " is not a name, in quotes");
  }

  static uint32_t countAt(const std::string& path, const toml::node& node, uint32_t least,
                          uint32_t most) {
    const auto number = node.value_exact<int64_t>();
    if (number && *number >= least && *number <= most) return static_cast<uint32_t>(*number);
    throw SettingsError(node.source(), path + ": " +
                                           whyNo("a whole number between " + std::to_string(least) +
                                                     " and " + std::to_string(most),
                                                 node));
  }

  // As limits.call_time.
  static std::chrono::milliseconds callTimeAt(const std::string& path, const toml::node& node) {
    const auto parsed =
        base::parseSetting(*base::findSetting("limits.call_time"), textAt(path, node));
    if (const auto* problem = std::get_if<std::string>(&parsed)) {
      throw SettingsError(node.source(), path + ": " + *problem);
    }
    return std::chrono::milliseconds(std::get<base::SettingValue>(parsed).number);
  }

  static uint32_t userIdOf(const std::string& path, const std::string& user,
                           const toml::node& node) {
    if (const passwd* known = ::getpwnam(user.c_str())) return known->pw_uid;
    const bool digits =
        !user.empty() && user.size() < 10 && user.find_first_not_of("0123456789") == user.npos;
    if (!digits) {
      throw SettingsError(node.source(), path + ": '" + user + "' is not a user of this system");
    }
    return static_cast<uint32_t>(std::stoul(user));
  }

  SettingsFile file_;
};

}  // namespace

std::variant<SettingsFile, std::string> readSettingsFile(const std::string& path) {
  try {
    return Reader().read(toml::parse(base::contentOfRegularFile(path, kMostBytes)));
  } catch (const toml::parse_error& error) {
    return path + ":" + std::to_string(error.source().begin.line) + ": " +
           std::string(error.description());
  } catch (const base::FileError& error) {
    return path + ": " + error.what();
  } catch (const std::runtime_error& error) {
    return path + ":" + error.what();
  }
}

}  // namespace isopool::supervisor
