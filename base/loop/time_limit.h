// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include "base/loop/timer.h"
#include "base/running_time.h"

namespace isopool::base {

/// A time limit for another process, counted in the time for which this process has run: see
/// RunningTime. Otherwise as Timer, which is for this process's own times (retries, reports). While
/// it is set, it wakes the loop eight times within the limit, at least once a second.
class TimeLimit {
 public:
  explicit TimeLimit(EventLoop& loop) : loop_(loop), timer_(loop) {}

  /// Calls `over` once, when this process has run for `limit`, unless the limit is set again,
  /// cancelled or destroyed before.
  void setAfter(Milliseconds limit, std::function<void()> over);
  /// The callback is not called any more. No effect if no limit is set.
  void cancel() { timer_.cancel(); }
  /// True until the callback is called or the limit is cancelled.
  bool isSet() const { return timer_.isSet(); }

 private:
  void look();

  EventLoop& loop_;
  Timer timer_;
  RunningTime time_;
  Milliseconds limit_{0};
  std::function<void()> over_;
};

}  // namespace isopool::base
