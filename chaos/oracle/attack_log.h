// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

namespace chaos {

/// Who was attacked: a death of anybody else is a fault. An attack excuses a death until it is
/// forgotten, for some time later the process's number may be another's. Any thread.
class AttackLog {
 public:
  void note(pid_t pid) {
    const std::lock_guard lock(mutex_);
    attacked_[pid] = round_;
  }
  bool attacked(pid_t pid) const {
    const std::lock_guard lock(mutex_);
    return attacked_.count(pid) != 0;
  }
  /// The deaths so far have been judged, however long that took. Forgets what was noted before the
  /// last time: who dies while others are judged is judged the next time.
  void endRound() {
    const std::lock_guard lock(mutex_);
    for (auto it = attacked_.begin(); it != attacked_.end();) {
      it = it->second < round_ ? attacked_.erase(it) : std::next(it);
    }
    ++round_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<pid_t, uint64_t> attacked_;  // by its number: the round of the last attack
  uint64_t round_ = 0;
};

}  // namespace chaos
