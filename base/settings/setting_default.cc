// SPDX-License-Identifier: BSD-3-Clause
#include "base/settings/setting_default.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/memory_limits.h"
#include "base/settings/setting_text.h"

namespace isopool::base {

namespace {

// Whole ones, so that the value is short in reports.
constexpr uint64_t kMebibyte = uint64_t{1} << 20;

}  // namespace

SettingValue writtenDefault(const Setting& setting) {
  if (setting.fallback.empty()) return {};
  return std::get<SettingValue>(parseSetting(setting, setting.fallback));
}

SettingValue defaultOf(const Setting& setting) {
  return defaultOf(setting, setting.memoryParts != 0 ? usableMemory() : 0);
}

SettingValue defaultOf(const Setting& setting, uint64_t memory) {
  SettingValue value = writtenDefault(setting);
  if (setting.memoryParts == 0) return value;
  const uint64_t part = std::max(memory / setting.memoryParts / kMebibyte, uint64_t{1}) * kMebibyte;
  value.number = std::min(value.number, std::max(part, setting.least));
  return value;
}

}  // namespace isopool::base
