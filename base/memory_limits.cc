// SPDX-License-Identifier: BSD-3-Clause
#include "base/memory_limits.h"

#include <algorithm>
#include <fstream>

#include "base/control_groups.h"

namespace isopool::base {

namespace {

// Nothing if the file's first word is not a number, as "max" for no limit.
std::optional<uint64_t> numberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

// The number that follows a word at the beginning of a line.
std::optional<uint64_t> numberAfter(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  std::string name;
  uint64_t number = 0;
  for (std::string line; file >> name;) {
    if (name == word && file >> number) return number;
    file.clear();
    std::getline(file, line);
  }
  return std::nullopt;
}

}  // namespace

uint64_t usableMemory(const std::string& root) {
  uint64_t least = UINT64_MAX;
  if (const auto kibibytes = numberAfter(root + "/proc/meminfo", "MemTotal:")) {
    least = *kibibytes * 1024;
  }
  for (const ControlGroup& group : controlGroupsFor("memory", root)) {
    const char* name = group.version == 2 ? "/memory.max" : "/memory.limit_in_bytes";
    for (const std::string& folder : group.folders) {
      if (const auto limit = numberIn(folder + name)) least = std::min(least, *limit);
    }
  }
  return least;
}

std::optional<MemoryUse> memoryUse(const std::string& root) {
  std::optional<MemoryUse> nearest;
  const auto consider = [&](uint64_t used, uint64_t reclaimable, uint64_t limit) {
    const MemoryUse use{used - std::min(used, reclaimable), limit};
    const auto left = [](const MemoryUse& each) {
      return each.limit - std::min(each.used, each.limit);
    };
    if (!nearest || left(use) < left(*nearest)) nearest = use;
  };
  const std::string machine = root + "/proc/meminfo";
  const auto total = numberAfter(machine, "MemTotal:");
  const auto available = numberAfter(machine, "MemAvailable:");
  if (total && available) consider(*total * 1024, *available * 1024, *total * 1024);
  for (const ControlGroup& group : controlGroupsFor("memory", root)) {
    const bool unified = group.version == 2;
    for (const std::string& folder : group.folders) {
      const auto limit = numberIn(folder + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
      const auto used = numberIn(folder + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
      if (!limit || !used || (total && *limit >= *total * 1024)) continue;
      consider(
          *used,
          numberAfter(folder + "/memory.stat", unified ? "inactive_file" : "total_inactive_file")
              .value_or(0),
          *limit);
    }
  }
  return nearest;
}

std::optional<uint64_t> memoryKills(const std::string& root) {
  for (const ControlGroup& group : controlGroupsFor("memory", root)) {
    const char* name = group.version == 2 ? "/memory.events" : "/memory.oom_control";
    for (const std::string& folder : group.folders) {
      if (const auto kills = numberAfter(folder + name, "oom_kill")) return kills;
    }
  }
  return numberAfter(root + "/proc/vmstat", "oom_kill");
}

std::optional<uint64_t> memoryKillsIn(const std::string& folder) {
  return numberAfter(folder + "/memory.events", "oom_kill");
}

bool memoryKillsWholeGroup(const std::string& root) {
  for (const ControlGroup& group : controlGroupsFor("memory", root)) {
    for (const std::string& folder : group.folders) {
      if (numberIn(folder + "/memory.oom.group") == 1) return true;
    }
  }
  return false;
}

}  // namespace isopool::base
