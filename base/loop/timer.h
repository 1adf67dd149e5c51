// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>

#include "base/loop/event_loop.h"

namespace isopool::base {

/// One alarm at a time: setting the timer replaces the alarm that was set before. The callback may
/// set or destroy the timer. All members are for the loop's thread.
class Timer {
 public:
  explicit Timer(EventLoop& loop) : loop_(loop), alarm_(loop.makeAlarm()) {}
  ~Timer() { cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Calls `alarm` once, at `when` or after `delay`, unless the timer is set again, cancelled or
  /// destroyed before.
  void setAt(TimePoint when, std::function<void()> alarm);
  void setAfter(Milliseconds delay, std::function<void()> alarm);
  /// The callback is not called any more. No effect if the timer is not set.
  void cancel();
  /// True until the alarm is called or cancelled.
  bool isSet() const { return setting_ != nullptr; }

 private:
  EventLoop& loop_;
  std::unique_ptr<EventLoop::Alarm> alarm_;
  /// The callback. Exists while the timer is set; a queued handler that finds it gone does nothing.
  std::shared_ptr<std::function<void()>> setting_;
};

}  // namespace isopool::base
