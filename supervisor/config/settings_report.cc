// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/config/settings_report.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/json.h"
#include "base/settings/setting_text.h"
#include "supervisor/config/settings.h"

namespace isopool::supervisor {

namespace {

constexpr size_t kLineWidth = 100;

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

base::Json jsonOf(const base::Setting& setting, const base::SettingValue& value) {
  switch (setting.kind) {
    case base::SettingKind::kCount:
      return value.number;
    case base::SettingKind::kSwitch:
      return value.number != 0;
    case base::SettingKind::kList:
      return value.items;
    case base::SettingKind::kSize:
    case base::SettingKind::kTime:
      if (value.number == 0) return 0;
      break;
    default:
      break;
  }
  return base::spellSetting(setting, value);
}

// TOML writes these as JSON does.
std::string tomlOf(const base::Setting& setting, const base::SettingValue& value) {
  if (setting.kind != base::SettingKind::kList) return base::jsonText(jsonOf(setting, value));
  std::string text = "[";
  for (const std::string& item : value.items) {
    text += (text.size() > 1 ? ", " : "") + base::jsonString(item);
  }
  return text + "]";
}

std::string paragraph(const std::string& text, const std::string& prefix) {
  std::istringstream words(text);
  std::string out;
  std::string line = prefix;
  for (std::string word; words >> word; line += " " + word) {
    if (line.size() + 1 + word.size() <= kLineWidth) continue;
    out += line + "\n";
    line = prefix;
  }
  return out + line + "\n";
}

std::string code(std::string_view text) { return text.empty() ? "" : joined({"`", text, "`"}); }

std::string cell(std::string text) {
  for (size_t at = text.find('|'); at != text.npos; at = text.find('|', at + 2)) {
    text.insert(at, 1, '\\');
  }
  return joined({" ", text, " |"});
}

std::string explanation(const base::Setting& setting) {
  std::string text(setting.description);
  if (!text.ends_with("...")) text += ".";
  if (!setting.more.empty()) text += joined({" ", setting.more});
  if (setting.scope == base::Scope::kVariableOnly) return text + " Environment only.";
  const bool hasRange = setting.kind != base::SettingKind::kPath &&
                        setting.kind != base::SettingKind::kText &&
                        setting.kind != base::SettingKind::kSwitch;
  if (hasRange) {
    const bool isChoice = setting.kind == base::SettingKind::kChoice;
    std::string values = (isChoice ? "one of " : "") + base::describeValues(setting);
    values[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(values[0])));
    text += " " + values + ".";
  }
  if (!setting.zero.empty() && setting.fallback != "0") {
    text += " 0: " + std::string(setting.zero) + ".";
  }
  if (setting.scope == base::Scope::kShared) text += " Shared supervisors only.";
  if (setting.reload == base::ReloadPolicy::kOnReload) text += " SIGHUP changes it.";
  return text;
}

std::string defaultCell(const base::Setting& setting) {
  if (!setting.fallbackWords.empty()) return std::string(setting.fallbackWords);
  const bool zero = setting.fallback == "0" && !setting.zero.empty();
  return std::string(setting.fallback) + (zero ? ": " + std::string(setting.zero) : "");
}

std::string row(const base::Setting& setting) {
  return joined({"|", cell(code(setting.key)), cell(code(setting.flag)),
                 cell(code(setting.variable)), cell(defaultCell(setting)),
                 cell(explanation(setting)), "\n"});
}

constexpr std::array<std::array<const char*, 3>, 6> kFileOnly{{
    {"environment.NAME", "",
     "A variable of zygote and workers. Overrides isopoold's own environment."},
    {"class.NAME.user", "any",
     "The class NAME is for clients of this user (a name or a number), ..."},
    {"class.NAME.program", "any",
     "... and of programs with this name. A client is in the first class of the file that fits "
     "it when it attaches. SIGHUP adds classes, and removes none."},
    {"class.NAME.share", "1",
     "While clients wait for a worker, a client of this class gets this many calls for one call of "
     "a client with share 1. A whole number between 1 and 1000. SIGHUP changes it."},
    {"class.NAME.dedicated_workers", "0",
     "Workers for this class only. Its programs call these and no shared ones, so that this many "
     "of "
     "their calls run at once. 0: they call the shared ones. A whole number between 0 and 1024. "
     "SIGHUP changes it, unless it is or becomes 0."},
    {"class.NAME.call_time", "`limits.call_time`",
     "How long one call of a client of this class may run: \"30s\"; \"0\" is no limit. SIGHUP "
     "changes it."},
}};

std::string tableOf(std::string_view key) {
  const size_t dot = key.find('.');
  return dot == key.npos ? "" : std::string(key.substr(0, dot));
}

std::string exampleOf(const base::Setting& setting) {
  const std::string_view shown = setting.fallback.empty() ? setting.example : setting.fallback;
  const auto value = std::get<base::SettingValue>(base::parseSetting(setting, shown));
  const bool isSwitch = setting.kind == base::SettingKind::kSwitch;
  std::string text =
      paragraph(isSwitch ? std::string(setting.description)
                         : joined({setting.description, " (", base::describeValues(setting), "; ",
                                   describeDefault(setting), ")"}),
                "#");
  const std::string_view key = setting.key.substr(setting.key.find('.') + 1);
  return text + "#" + std::string(key) + " = " + tomlOf(setting, value) + "\n";
}

std::string exampleTable(const std::string& table) {
  std::string text = table.empty() ? "" : "\n[" + table + "]\n";
  for (const base::Setting& setting : base::settingTable()) {
    if (!setting.key.empty() && tableOf(setting.key) == table)
      text += joined({"\n", exampleOf(setting)});
  }
  return text;
}

}  // namespace

std::string describeDefault(const base::Setting& setting) {
  if (!setting.fallbackWords.empty()) return "default: " + std::string(setting.fallbackWords);
  const std::string fallback = "default: " + std::string(setting.fallback);
  if (setting.zero.empty()) return fallback;
  if (setting.fallback == "0") return fallback + ", " + std::string(setting.zero);
  return fallback + "; 0: " + std::string(setting.zero);
}

std::string showSettings(const Settings& settings) {
  const std::vector<Settings::Shown> all = settings.shown();
  size_t keyWidth = 0;
  size_t textWidth = 0;
  for (const Settings::Shown& each : all) {
    keyWidth = std::max(keyWidth, each.key.size());
    textWidth = std::max(textWidth, std::min<size_t>(each.text.size(), 24));
  }
  std::string out;
  for (const Settings::Shown& each : all) {
    const std::string text = each.text.empty() ? "-" : each.text;
    out += out.empty() ? "" : "\n";
    out += each.key + std::string(keyWidth - each.key.size() + 2, ' ') + text;
    out += std::string(textWidth > text.size() ? textWidth - text.size() + 2 : 2, ' ');
    out += each.source;
  }
  return out;
}

std::string showSettingsAsJson(const Settings& settings) {
  std::string out = "[";
  for (const Settings::Shown& each : settings.shown()) {
    base::Json one{{"key", each.key}};
    one["value"] =
        each.setting != nullptr ? jsonOf(*each.setting, each.value) : base::Json(each.text);
    one["source"] = each.source;
    one["reloadable"] = each.reloadable();
    out += (out.size() > 1 ? ",\n " : "\n ") + base::jsonText(one);
  }
  return out + "\n]";
}

std::string settingsAsMarkdown() {
  std::string out;
  constexpr const char* kHead =
      "| in the file | flag | environment | default | |\n|---|---|---|---|---|\n";
  for (int group = 0; group <= static_cast<int>(base::SettingGroup::kLooking); ++group) {
    out += "### " + std::string(base::titleOf(base::SettingGroup(group))) + "\n\n" + kHead;
    for (const base::Setting& setting : base::settingTable()) {
      if (setting.group == base::SettingGroup(group)) out += row(setting);
    }
    out += "\n";
  }
  out += "### In the file only\n\n| in the file | default | |\n|---|---|---|\n";
  for (const auto& [key, fallback, text] : kFileOnly) {
    out += joined({"|", cell(code(key)), cell(fallback), cell(text), "\n"});
  }
  out.pop_back();
  return out;
}

std::string exampleSettingsFile() {
  std::string out =
      "# Settings of isopoold. A line that is commented out shows the default, or an example if "
      "the\n"
      "# setting has no default. `isopoold --config FILE --check` checks a file, and "
      "`--show-settings`\n"
      "# prints the values in effect. Flags and ISOPOOL_* environment variables override this "
      "file.\n";
  std::vector<std::string> tables;
  for (const base::Setting& setting : base::settingTable()) {
    const std::string table = tableOf(setting.key);
    if (!setting.key.empty() && std::find(tables.begin(), tables.end(), table) == tables.end()) {
      tables.push_back(table);
    }
  }
  // Keys outside of tables come before the first table.
  std::stable_partition(tables.begin(), tables.end(),
                        [](const std::string& table) { return table.empty(); });
  for (const std::string& table : tables) out += exampleTable(table);
  out +=
      "\n# Variables of zygote and workers. They override isopoold's own environment.\n"
      "[environment]\n"
      "#TORCHINDUCTOR_CACHE_DIR = \"/var/cache/isopool/torchinductor\"\n"
      "\n# A class of clients; a client is in the first class that fits it. While clients wait, a\n"
      "# client of this class gets four calls for one call of a client with share 1. With\n"
      "# dedicated_workers the class has workers of its own, and calls these in place of the "
      "shared\n"
      "# ones: then share is for the clients of the class among themselves.\n"
      "#[class.interactive]\n"
      "#user = \"www-data\"\n"
      "#program = \"frontend\"\n"
      "#share = 4\n"
      "#dedicated_workers = 1";
  return out;
}

}  // namespace isopool::supervisor
