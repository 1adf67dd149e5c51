// SPDX-License-Identifier: BSD-3-Clause
#include "base/settings/setting_text.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/units.h"

namespace isopool::base {

namespace {

struct Quantity {
  std::string_view what;
  std::span<const Unit> units;
  uint64_t bareFactor;  ///< unit of a number that stands alone
};

const Quantity& quantityOf(SettingKind kind) {
  static constexpr Quantity kTime{"a TIME like 500ms, 30s or 2m", kTimeUnits, 1000};
  static constexpr Quantity kSize{"a SIZE like 512KiB, 8MiB or 1GiB", kSizeUnits, 1};
  static constexpr Quantity kCount{"a whole number", {}, 1};
  if (kind == SettingKind::kTime) return kTime;
  return kind == SettingKind::kSize ? kSize : kCount;
}

bool isQuantity(SettingKind kind) {
  return kind == SettingKind::kTime || kind == SettingKind::kSize || kind == SettingKind::kCount;
}

std::string spell(SettingKind kind, uint64_t number) {
  return spellQuantity(number, quantityOf(kind).units);
}

std::string describeRange(const Setting& setting) {
  std::string text = setting.zero.empty() ? "" : "0 or ";
  if (setting.most >= UINT32_MAX && setting.kind == SettingKind::kCount) {
    return text + "at least " + spell(setting.kind, setting.least);
  }
  return text + "between " + spell(setting.kind, setting.least) + " and " +
         spell(setting.kind, setting.most);
}

std::string quoted(std::string_view text) { return std::string("'").append(text) + "'"; }

using Parsed = std::variant<SettingValue, std::string>;

Parsed parseQuantitySetting(const Setting& setting, std::string_view text) {
  const Quantity& quantity = quantityOf(setting.kind);
  const auto parsed = parseQuantity(text, quantity.units, quantity.bareFactor);
  if (!parsed) {
    if (setting.kind != SettingKind::kCount) {
      return quoted(text) + " is not " + std::string(quantity.what);
    }
    return quoted(text) + " is not " + describeValues(setting);
  }
  const uint64_t number = *parsed;
  const bool isZero = number == 0 && !setting.zero.empty();
  if (!isZero && (number > setting.most || number < setting.least)) {
    return quoted(text) + " is not " + describeValues(setting);
  }
  return SettingValue{number, {}, {}};
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

Parsed parseChoice(const Setting& setting, std::string_view text) {
  const auto choices = split(setting.choices, '|');
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) {
    return SettingValue{0, std::string(text), {}};
  }
  std::string names;
  for (const std::string_view choice : choices) {
    names += (names.empty() ? "" : ", ") + std::string(choice);
  }
  return quoted(text) + " is not one of " + names;
}

Parsed parseSwitch(std::string_view text) {
  for (const std::string_view yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return SettingValue{1, {}, {}};
  }
  for (const std::string_view no : {"0", "false", "no", "off"}) {
    if (text == no) return SettingValue{0, {}, {}};
  }
  return quoted(text) + " is neither 1 (true, yes, on) nor 0 (false, no, off)";
}

Parsed parseList(const Setting& setting, std::string_view text) {
  SettingValue value;
  for (std::string_view item : split(text, setting.separator)) {
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    if (item.empty()) continue;
    const bool isFolder = setting.separator == ':';
    if (isFolder && item.front() != '/') return quoted(item) + " is not a path that begins with /";
    value.items.emplace_back(item);
  }
  return value;
}

// The number of single characters to add, drop or change.
size_t editDistance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t change = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string_view lastPart(std::string_view key) { return key.substr(key.rfind('.') + 1); }

size_t distance(std::string_view wrong, std::string_view right) {
  return std::min(editDistance(wrong, right), editDistance(lastPart(wrong), lastPart(right)) + 1);
}

}  // namespace

Parsed parseSetting(const Setting& setting, std::string_view text) {
  if (isQuantity(setting.kind)) return parseQuantitySetting(setting, text);
  switch (setting.kind) {
    case SettingKind::kChoice:
      return parseChoice(setting, text);
    case SettingKind::kSwitch:
      return parseSwitch(text);
    case SettingKind::kList:
      return parseList(setting, text);
    default:
      return SettingValue{0, std::string(text), {}};
  }
}

std::string spellSetting(const Setting& setting, const SettingValue& value) {
  if (isQuantity(setting.kind)) return spell(setting.kind, value.number);
  if (setting.kind == SettingKind::kSwitch) return std::to_string(value.number);
  if (setting.kind != SettingKind::kList) return value.text;
  std::string text;
  for (const std::string& item : value.items) {
    if (!text.empty()) text += setting.separator;
    text += item;
  }
  return text;
}

std::string describeValues(const Setting& setting) {
  switch (setting.kind) {
    case SettingKind::kCount:
      return "a whole number" + std::string(setting.zero.empty() ? " " : ", ") +
             describeRange(setting);
    case SettingKind::kSize:
    case SettingKind::kTime:
      return describeRange(setting);
    case SettingKind::kChoice: {
      const auto choices = split(setting.choices, '|');
      std::string text;
      for (size_t i = 0; i < choices.size(); ++i) {
        if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
        text += choices[i];
      }
      return text;
    }
    case SettingKind::kSwitch:
      return "1 or 0";
    case SettingKind::kList:
      return setting.separator == ':' ? "folders separated by ':'" : "names separated by ','";
    case SettingKind::kPath:
      return "a path";
    case SettingKind::kText:
      return "a name";
  }
  return "";
}

std::string nearestOf(std::string_view word, const std::vector<std::string>& words) {
  return *std::min_element(words.begin(), words.end(),
                           [&](const std::string& left, const std::string& right) {
                             return distance(word, left) < distance(word, right);
                           });
}

std::string whyNoVariable(std::string_view name) {
  if (!name.starts_with("ISOPOOL_")) return {};
  std::vector<std::string> known{"ISOPOOL_CONFIG", "ISOPOOL_CLIENT_CRASH_POINT",
                                 "ISOPOOL_SUPERVISOR_CRASH_POINT", "ISOPOOL_ZYGOTE_CRASH_POINT"};
  for (const Setting& setting : settingTable()) {
    if (!setting.variable.empty()) known.emplace_back(setting.variable);
  }
  if (std::find(known.begin(), known.end(), name) != known.end()) return {};
  return "is not a setting; the nearest is " + nearestOf(name, known);
}

}  // namespace isopool::base
