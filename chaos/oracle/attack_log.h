// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <map>
#include <mutex>
#include <string>

namespace chaos {

/// Who was attacked, and how: a death of anybody else is a fault. Process numbers come again too
/// seldom within a run to matter. Any thread.
class AttackLog {
 public:
  void note(pid_t pid, const std::string& how) {
    const std::lock_guard lock(mutex_);
    attacked_[pid] = how;
  }
  bool attacked(pid_t pid) const {
    const std::lock_guard lock(mutex_);
    return attacked_.count(pid) != 0;
  }

 private:
  mutable std::mutex mutex_;
  std::map<pid_t, std::string> attacked_;
};

}  // namespace chaos
