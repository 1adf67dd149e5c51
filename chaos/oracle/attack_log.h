// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <mutex>

namespace chaos {

/// Who was attacked: a death of anybody else is a fault. An attack excuses a death for a minute: by
/// then what it does is done and its traces are read, and soon after that the process's number may
/// be another's. Any thread.
class AttackLog {
 public:
  void note(pid_t pid) {
    const std::lock_guard lock(mutex_);
    attacked_[pid] = Clock::now();
  }
  bool attacked(pid_t pid) const {
    const std::lock_guard lock(mutex_);
    const auto found = attacked_.find(pid);
    return found != attacked_.end() && Clock::now() - found->second < kExcuses;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kExcuses{60};

  mutable std::mutex mutex_;
  std::map<pid_t, Clock::time_point> attacked_;
};

}  // namespace chaos
