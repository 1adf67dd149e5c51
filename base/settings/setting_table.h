// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isopool::base {

enum class SettingKind { kCount, kSize, kTime, kText, kPath, kList, kChoice, kSwitch };

/// The heading under which help and documentation show a setting, in the order of the headings.
enum class SettingGroup {
  kListening,
  kWorkers,
  kTimeouts,
  kMemory,
  kClients,
  kRecycling,
  kSandbox,
  kPython,
  kLooking
};

/// Which processes use a setting.
enum class Scope {
  kSupervisor,  ///< any supervisor
  kShared,      ///< only a supervisor that listens; a private pool does not use the setting
  kWorkers,     ///< the zygote and the workers get the value in the setting's variable
  kSupervisorAndWorkers,
  kVariableOnly  ///< a variable that programs read: no key, no flag
};

/// When the supervisor uses a changed value.
enum class ReloadPolicy { kAtStart, kOnReload };

/// The parsed value of a setting. The setting's kind decides which field holds it: `number` for
/// counts, sizes (bytes), times (milliseconds) and switches (0 or 1), `text` for texts, paths and
/// choices, `items` for lists.
struct SettingValue {
  uint64_t number = 0;
  std::string text;
  std::vector<std::string> items;
  bool operator==(const SettingValue&) const = default;
};

/// One setting. Flags, environment variables, keys of the settings file, `--help` and the
/// documentation are all made from these entries.
struct Setting {
  std::string_view key{};       ///< in the settings file; "limits.memory" is `memory` in the table
                                ///< [limits]; empty: none
  std::string_view flag{};      ///< empty: none
  std::string_view variable{};  ///< empty: none
  SettingKind kind = SettingKind::kText;
  std::string_view fallback{};       ///< the default, as a user would write it; empty: none
  std::string_view fallbackWords{};  ///< describes the default if `fallback` is empty or is not
                                     ///< always the default
  std::string_view example{};        ///< a value to show if there is no default
  uint64_t least = 0;                ///< the range of `number`, without a 0 that `zero` allows
  uint64_t most = UINT64_MAX;
  uint32_t memoryParts = 0;    ///< the default is at most 1 / memoryParts of the memory that the
                               ///< process may use; 0: it does not depend on that
  std::string_view zero{};     ///< what 0 means if 0 is allowed besides [least, most]
  std::string_view choices{};  ///< of kChoice, separated by '|'
  char separator = ',';        ///< between the items of a kList in flags and variables
  SettingGroup group = SettingGroup::kWorkers;
  Scope scope = Scope::kSupervisor;
  ReloadPolicy reload = ReloadPolicy::kAtStart;
  std::string_view description{};  ///< one sentence without a full stop, for help
  std::string_view more{};         ///< further sentences, for the documentation

  bool concernsWorkers() const {
    return scope == Scope::kWorkers || scope == Scope::kSupervisorAndWorkers;
  }
};

/// All settings. Constant, so any thread may read it.
std::span<const Setting> settingTable();

/// The setting with this key of the settings file, or nullptr.
const Setting* findSetting(std::string_view key);

/// The heading of a group.
std::string_view titleOf(SettingGroup group);

}  // namespace isopool::base
