// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace chaos {

/// Records which processes were attacked: the death of any other process is a fault. An attack
/// excuses a death until it is forgotten, because the process's number may be reused later.
/// Thread-safe.
///
/// Also records when managers were disturbed: a constructor, load or close may fail while a
/// supervisor, its zygote or its guardian is killed and not yet replaced, while one of them or the
/// program is stopped, or while memory or descriptors of a process that takes part are short. At
/// any other time a failure is a fault.
class AttackLog {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void note(pid_t pid) {
    const std::lock_guard lock(mutex_);
    attacked_[pid] = round_;
  }
  bool attacked(pid_t pid) const {
    const std::lock_guard lock(mutex_);
    return attacked_.count(pid) != 0;
  }
  void noteDisturbance(Time from, Time until) {
    const std::lock_guard lock(mutex_);
    disturbances_.push_back({from, until, round_});
  }
  /// No process ran meanwhile: what follows from earlier attacks is later by this time.
  void noteFreeze(Time from, Time until) {
    const std::lock_guard lock(mutex_);
    for (Disturbance& each : disturbances_) {
      if (each.until >= from) each.until += until - from;
    }
  }
  bool disturbed(Time from, Time until) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(disturbances_.begin(), disturbances_.end(), [&](const Disturbance& each) {
      return each.from <= until && from <= each.until;
    });
  }
  /// How long before `time` the last disturbance was over, if one is remembered.
  std::optional<std::chrono::milliseconds> sinceDisturbance(Time time) const {
    const std::lock_guard lock(mutex_);
    std::optional<std::chrono::milliseconds> shortest;
    for (const Disturbance& each : disturbances_) {
      const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(time - each.until);
      if (since.count() >= 0 && (!shortest || since < *shortest)) shortest = since;
    }
    return shortest;
  }
  /// Call when all deaths so far have been judged. Forgets what was noted before the previous call:
  /// a death during the judgement is judged in the next round.
  void endRound() {
    const std::lock_guard lock(mutex_);
    for (auto it = attacked_.begin(); it != attacked_.end();) {
      it = it->second < round_ ? attacked_.erase(it) : std::next(it);
    }
    std::erase_if(disturbances_, [this](const Disturbance& each) { return each.round < round_; });
    ++round_;
  }

 private:
  struct Disturbance {
    Time from;
    Time until;
    uint64_t round;
  };

  mutable std::mutex mutex_;
  std::map<pid_t, uint64_t> attacked_;  // by process: the round of the last attack
  std::vector<Disturbance> disturbances_;
  uint64_t round_ = 0;
};

}  // namespace chaos
