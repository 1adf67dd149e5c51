// SPDX-License-Identifier: BSD-3-Clause
#include "base/loop/time_limit.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace isopool::base {

namespace {

constexpr int kLooks = 8;
constexpr Milliseconds kLongestBetweenLooks(1000);

}  // namespace

void TimeLimit::setAfter(Milliseconds limit, std::function<void()> over) {
  time_ = RunningTime(std::clamp(limit / kLooks, Milliseconds(1), kLongestBetweenLooks));
  time_.look(loop_.now());
  limit_ = limit;
  over_ = std::move(over);
  timer_.setAfter(std::chrono::ceil<Milliseconds>(time_.untilLook(limit_)), [this] { look(); });
}

void TimeLimit::look() {
  if (time_.look(loop_.now()) >= limit_) {
    // May set or destroy this object.
    const auto over = std::exchange(over_, nullptr);
    return over();
  }
  timer_.setAfter(std::chrono::ceil<Milliseconds>(time_.untilLook(limit_)), [this] { look(); });
}

}  // namespace isopool::base
