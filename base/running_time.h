// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace isopool::base {

/// How long this process has run, by looks at a clock. A process that decides by a time limit that
/// another process hangs counts this time and not the clock's: if both were stopped (by a cgroup
/// freezer, a debugger, SIGSTOP), or only this one, the other process had no time, or may have done
/// all that was wanted while this one did not see it.
///
/// If two looks are much further apart than kBetweenLooks or the value given, this process did not
/// run in between. Nothing of that interval counts, and then nothing counts for an interval between
/// two looks, at least kBetweenLooks: the other process has it to wake up in, whatever the limit
/// is. The clock does not advance while the machine is suspended, so that time does not count
/// either.
///
/// Pure: the caller passes the time and serialises the calls.
class RunningTime {
 public:
  static constexpr std::chrono::milliseconds kBetweenLooks{100};

  /// `between`: the longest time between two looks while this process runs.
  explicit constexpr RunningTime(std::chrono::nanoseconds between = kBetweenLooks)
      : between_(between) {}

  /// Returns the time counted from the first look until now. Never decreases. While a limit is
  /// pending, call this at least every `between`.
  std::chrono::nanoseconds look(TimePoint now) {
    if (!std::exchange(begun_, true)) first_ = last_ = now;
    const std::chrono::nanoseconds gap = now - last_;
    if (gap.count() <= 0) return counted_;  // another thread has looked later
    last_ = now;
    if (gap <= between_ + kScheduling) {
      stopsInARow_ = 0;
      const std::chrono::nanoseconds ignored = std::min(gap, pause_);
      pause_ -= ignored;
      counted_ += gap - ignored;
    } else if (++stopsInARow_ < kMostStopsInARow) {
      pause_ = std::max<std::chrono::nanoseconds>(between_, kBetweenLooks);
    } else {
      // Every look is late: the machine is overloaded.
      counted_ += between_;
    }
    return counted_;
  }
  /// The time since the last look does not count, and does not show that this process was stopped:
  /// nothing was pending.
  void skipTo(TimePoint now) {
    if (!std::exchange(begun_, true)) first_ = last_ = now;
    if (now <= last_) return;
    first_ += now - last_;
    last_ = now;
  }
  /// The time counted by the last look.
  std::chrono::nanoseconds counted() const { return counted_; }
  /// The rest of the time from the first look to the last one.
  std::chrono::nanoseconds lost() const { return last_ - first_ - counted_; }
  /// How long to wait until the next look, if something is due when `limit` is counted.
  std::chrono::nanoseconds untilLook(std::chrono::nanoseconds limit) const {
    return std::clamp(limit - counted_ + pause_, std::chrono::nanoseconds(0), between_);
  }

 private:
  // A process that is ready to run gets a processor within this time.
  static constexpr std::chrono::milliseconds kScheduling{100};
  static constexpr int kMostStopsInARow = 10;

  std::chrono::nanoseconds between_;
  bool begun_ = false;
  TimePoint first_;
  TimePoint last_;
  std::chrono::nanoseconds counted_{0};
  std::chrono::nanoseconds pause_{0};  // of the time to come, this does not count
  int stopsInARow_ = 0;
};

}  // namespace isopool::base
