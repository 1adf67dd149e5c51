// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace chaos {

/// Where the program's callers stop on request. Thread-safe.
class Rest {
 public:
  explicit Rest(int callers) : callers_(callers) {}

  // ---- the program
  void begin() { change(true, ended_); }
  void end() { change(false, ended_); }
  void endProgram() { change(false, true); }
  /// Waits until all callers rest. False if they do not in time.
  bool waitUntilAllRest(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return resting_ == callers_; });
  }

  // ---- a caller
  bool wanted() const {
    std::lock_guard lock(mutex_);
    return wanted_ || ended_;
  }
  /// Rests as long as rest is requested. False if the program ends.
  bool take() {
    std::unique_lock lock(mutex_);
    ++resting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !wanted_ || ended_; });
    --resting_;
    return !ended_;
  }
  /// Waits for this time, or until rest is requested.
  void pause(std::chrono::microseconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [&] { return wanted_ || ended_; });
  }

 private:
  void change(bool wanted, bool ended) {
    std::lock_guard lock(mutex_);
    wanted_ = wanted;
    ended_ = ended;
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const int callers_;
  int resting_ = 0;
  bool wanted_ = false;
  bool ended_ = false;
};

}  // namespace chaos
