// SPDX-License-Identifier: BSD-3-Clause
#include "base/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>

#include "base/control_groups.h"
#include "base/without_cancellation.h"

namespace isopool::base {

namespace {

// Processor time per time; nothing if the file states no limit.
std::optional<double> quotaOfVersion2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0;
  double period = 0;
  // Without a limit the first word is "max".
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> quotaOfVersion1(const std::string& folder) {
  std::ifstream quotaFile(folder + "/cpu.cfs_quota_us");
  std::ifstream periodFile(folder + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  // Without a limit the quota is -1.
  if (!(quotaFile >> quota) || !(periodFile >> period) || quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  return quota / period;
}

// The least quota of the process's groups and their ancestors.
double processorTimeOfGroups(const std::string& root) {
  double least = HUGE_VAL;
  for (const ControlGroup& group : controlGroupsFor("cpu", root)) {
    for (const std::string& folder : group.folders) {
      const auto quota = group.version == 2 ? quotaOfVersion2(folder) : quotaOfVersion1(folder);
      if (quota) least = std::min(least, *quota);
    }
  }
  return least;
}

}  // namespace

int usableProcessors(const std::string& root) {
  const WithoutCancellation complete;
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (::sched_getaffinity(0, sizeof processors, &processors) != 0) return 1;
  const double most = std::min<double>(CPU_COUNT(&processors), processorTimeOfGroups(root));
  return std::max(1, static_cast<int>(std::ceil(most)));
}

}  // namespace isopool::base
