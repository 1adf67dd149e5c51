// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "chaos/nemesis/attack.h"
#include "chaos/oracle/findings.h"
#include "chaos/target/target.h"
#include "testing/freezer.h"

namespace chaos {

/// Counts the attacks on all targets. Thread-safe.
struct AttackCounts {
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Family::kFamilies)> byFamily{};
  std::atomic<uint64_t> plainKills{0};
  std::atomic<uint64_t> realKills{0};
};

/// Attacks one target according to its plan. To be used from one thread.
class Nemesis {
 public:
  Nemesis(Target& target, AttackPlan plan, AttackCounts& counts, Findings& findings);

  /// Attacks until `end` or until `enough` returns true. Then reverts what can be reverted:
  /// continues stopped processes, restores limits, corrects the clock.
  void attackUntil(std::chrono::steady_clock::time_point end, const std::function<bool()>& enough);

 private:
  using Time = std::chrono::steady_clock::time_point;

  void carryOut(const Attack& attack);
  /// Records that managers are disturbed from `from` until the consequences of the attack are over.
  void noteDisturbance(Time from, Time until);
  void takeBack(Time until);
  void later(std::chrono::milliseconds length, std::function<void()> act);

  // One file for each family.
  void kill(const Attack& attack, pid_t victim, int signal);
  void stop(const Attack& attack, pid_t victim);
  void freeze(const Attack& attack);
  void takeDescriptors(const Attack& attack, pid_t victim);
  void takeMemory(const Attack& attack, pid_t victim);
  void limit(const Attack& attack, pid_t victim, int resource, uint64_t least);
  /// Restores the limit of address space of all processes that have inherited a low one, as far as
  /// they can be seen at this moment. A process that is limited itself keeps its limit.
  void restoreHeirs();
  void interrupt(const Attack& attack, pid_t victim);
  void occupyProcessors(const Attack& attack);
  void stepClock(const Attack& attack);

  Target& target_;
  AttackPlan plan_;
  AttackCounts& counts_;
  Findings& findings_;
  std::multimap<Time, std::function<void()>> restorations_;
  std::map<pid_t, Time> stopped_;
  std::optional<isopool::tests::Freezer> freezer_;
  std::set<std::pair<pid_t, int>> limited_;  ///< limited processes, and the resource
};

}  // namespace chaos
