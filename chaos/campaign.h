// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "chaos/nemesis/nemesis.h"
#include "chaos/oracle/findings.h"
#include "chaos/target/target.h"

namespace chaos {

struct CampaignSettings {
  /// The number of kills: a tenth of them with real workers, or all in `target`. 0: as many as fit
  /// into the time.
  uint64_t kills = 0;
  std::chrono::milliseconds time{0};  ///< the longest time; 0: no limit
  std::chrono::milliseconds episode{10000};
  uint64_t seed = 1;
  int slowness = 1;    ///< each limit of time is multiplied by this
  std::string target;  ///< the only target; empty: all targets
  std::string fault;   ///< planted into the first program
  /// True once the campaign is to end early. Called from several threads.
  std::function<bool()> endEarly = [] { return false; };
  bool progress = false;
};

struct CampaignResult {
  uint64_t kills = 0;
  uint64_t realKills = 0;
  uint64_t calls = 0;
  uint64_t episodes = 0;  ///< of all targets together
  uint64_t selfInflictedDeaths = 0;
  double seconds = 0;
  std::chrono::milliseconds latest{0};
  std::array<uint64_t, static_cast<size_t>(Outcome::kOutcomes)> outcomes{};
  std::array<uint64_t, static_cast<size_t>(Family::kFamilies)> attacks{};
  std::map<RecordFlag, ManagerCounts> managers;  ///< kConstructor, kLoad, kClose
  bool systemMemoryCompared = false;
  bool endedEarly = false;  ///< by CampaignSettings::endEarly
};

/// The targets: private pools and shared supervisors, with and without torch.
std::vector<TargetPlan> targetPlans(const CampaignSettings& settings);

/// Attacks all targets at the same time, each in episodes of its own. Checks a target after each of
/// its episodes. A target ends when enough processes of its kind, plain or real, were killed.
/// Attacks nothing if targets that nobody has attacked are not in order, unless a fault is planted.
CampaignResult run(const CampaignSettings& settings, const Installation& installation,
                   Findings& findings);

}  // namespace chaos
