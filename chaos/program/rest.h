// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace chaos {

/// Where the program's callers stop on request. Thread-safe.
class Rest {
 public:
  explicit Rest(int callers) : callers_(callers) {}

  // ---- the program
  void begin() {
    std::lock_guard lock(mutex_);
    wanted_ = true;
    changed_.notify_all();
  }
  /// Every caller that rests goes on, also one that wakes only after the next rest has begun: it
  /// makes a call between any two rests.
  void end() {
    std::lock_guard lock(mutex_);
    wanted_ = false;
    resting_ = 0;
    ++ends_;
    changed_.notify_all();
  }
  void endProgram() {
    std::lock_guard lock(mutex_);
    programEnds_ = true;
    changed_.notify_all();
  }
  /// Waits until all callers rest. False if they do not in time.
  bool waitUntilAllRest(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return resting_ == callers_; });
  }

  // ---- a caller
  bool wanted() const {
    std::lock_guard lock(mutex_);
    return wanted_ || programEnds_;
  }
  /// Rests as long as rest is requested. False if the program ends.
  bool take() {
    std::unique_lock lock(mutex_);
    if (!wanted_) return !programEnds_;
    const uint64_t ends = ends_;
    ++resting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return ends_ != ends || programEnds_; });
    return !programEnds_;
  }
  /// Waits for this time, or until rest is requested.
  void pause(std::chrono::microseconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [&] { return wanted_ || programEnds_; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const int callers_;
  int resting_ = 0;    // in the present rest
  uint64_t ends_ = 0;  // of rests
  bool wanted_ = false;
  bool programEnds_ = false;
};

}  // namespace chaos
