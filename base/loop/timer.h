// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>

#include "base/loop/event_loop.h"

namespace isopool::base {

/// One alarm that can be set again and again; setting it forgets the one before. Its callback may
/// set or destroy it.
class Timer {
 public:
  explicit Timer(EventLoop& loop) : loop_(loop), alarm_(loop.makeAlarm()) {}
  ~Timer() { cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void setAt(TimePoint when, std::function<void()> alarm);
  void setAfter(Milliseconds delay, std::function<void()> alarm);
  void cancel();
  bool isSet() const { return setting_ != nullptr; }

 private:
  EventLoop& loop_;
  std::unique_ptr<EventLoop::Alarm> alarm_;
  /// Alive while the alarm is wanted.
  std::shared_ptr<std::function<void()>> setting_;
};

}  // namespace isopool::base
