// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "chaos/nemesis/attack.h"
#include "chaos/oracle/findings.h"
#include "chaos/target/target.h"

namespace chaos {

/// What was done, over all targets. Any thread.
struct AttackCounts {
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Family::kFamilies)> byFamily{};
  std::atomic<uint64_t> plainKills{0};
  std::atomic<uint64_t> realKills{0};
};

/// Attacks one target, by its plan. One thread.
class Nemesis {
 public:
  Nemesis(Target& target, AttackPlan plan, AttackCounts& counts, Findings& findings);

  /// Attacks until the time is over or `enough` says so, then takes back what can be: who is
  /// stopped goes on, limits are what they were, the clock is right.
  void attackUntil(std::chrono::steady_clock::time_point end, const std::function<bool()>& enough);

 private:
  using Time = std::chrono::steady_clock::time_point;

  void carryOut(const Attack& attack);
  /// Of managers, from `from` until what the attack brings about is over as well.
  void noteDisturbance(Time from, Time until);
  void takeBack(Time until);
  void later(std::chrono::milliseconds length, std::function<void()> act);

  // One file for each.
  void kill(const Attack& attack, pid_t victim, int signal);
  void stop(const Attack& attack, pid_t victim);
  void takeDescriptors(const Attack& attack, pid_t victim);
  void takeMemory(const Attack& attack, pid_t victim);
  void limit(const Attack& attack, pid_t victim, int resource, uint64_t least);
  /// Of address space that somebody inherited from a victim while it was short of it.
  void restoreHeirs(const rlimit& low, const rlimit& before);
  void interrupt(const Attack& attack, pid_t victim);
  void occupyProcessors(const Attack& attack);
  void stepClock(const Attack& attack);

  Target& target_;
  AttackPlan plan_;
  AttackCounts& counts_;
  Findings& findings_;
  std::multimap<Time, std::function<void()>> restorations_;
  std::map<pid_t, Time> stopped_;
  std::set<std::pair<pid_t, int>> limited_;  ///< and which resource
};

}  // namespace chaos
