// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isopool::base {

enum class SettingKind { kCount, kSize, kTime, kText, kPath, kList, kChoice, kSwitch };

/// Under which heading help and documentation show a setting; in their order.
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
  kShared,      ///< only one that listens; a private pool has no use for it
  kWorkers,     ///< handed to zygote and workers as its environment variable
  kSupervisorAndWorkers,
  kVariableOnly  ///< a variable that programs read: no key, no flag
};

/// When the supervisor uses a changed value.
enum class ReloadPolicy { kAtStart, kOnReload };

/// What a setting's text means. The kind says which of the fields: counts, bytes, milliseconds and
/// switches are `number`, texts, paths and choices `text`, lists `items`.
struct SettingValue {
  uint64_t number = 0;
  std::string text;
  std::vector<std::string> items;
  bool operator==(const SettingValue&) const = default;
};

/// One thing that can be set: the source of flags, environment variables, file keys, help and
/// documentation.
struct Setting {
  std::string_view key{};       ///< in the file; "limits.memory" is memory in [limits]; empty: none
  std::string_view flag{};      ///< empty: none
  std::string_view variable{};  ///< empty: none
  SettingKind kind = SettingKind::kText;
  std::string_view fallback{};       ///< what holds unless set, in the spelling of a user
  std::string_view fallbackWords{};  ///< where that is nothing, or can't be told in advance
  std::string_view example{};        ///< a value to show, where the fallback is none
  uint64_t least = 0;                ///< of counts; bytes; milliseconds
  uint64_t most = UINT64_MAX;
  std::string_view zero{};     ///< what 0 means, where it is allowed besides least to most
  std::string_view choices{};  ///< of kChoice, separated by '|'
  char separator = ',';        ///< of kList, in flags and variables
  SettingGroup group = SettingGroup::kWorkers;
  Scope scope = Scope::kSupervisor;
  ReloadPolicy reload = ReloadPolicy::kAtStart;
  std::string_view description{};  ///< one sentence without a full stop, for help
  std::string_view more{};         ///< further sentences, for the documentation

  bool concernsWorkers() const {
    return scope == Scope::kWorkers || scope == Scope::kSupervisorAndWorkers;
  }
};

std::span<const Setting> settingTable();

/// nullptr: there is none.
const Setting* findSetting(std::string_view key);

std::string_view titleOf(SettingGroup group);

}  // namespace isopool::base
