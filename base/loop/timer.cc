// SPDX-License-Identifier: BSD-3-Clause
#include "base/loop/timer.h"

#include <utility>

namespace isopool::base {

void Timer::setAt(TimePoint when, std::function<void()> alarm) {
  setting_ = std::make_shared<std::function<void()>>(std::move(alarm));
  alarm_->expireAt(when, [this, wanted = std::weak_ptr(setting_)] {
    const auto setting = wanted.lock();
    if (setting == nullptr) return;
    setting_.reset();
    (*setting)();
  });
}

void Timer::setAfter(Milliseconds delay, std::function<void()> alarm) {
  setAt(loop_.now() + delay, std::move(alarm));
}

void Timer::cancel() {
  setting_.reset();
  alarm_->cancel();
}

}  // namespace isopool::base
