// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/reconnection.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <random>

#include "base/blocked_signals.h"
#include "client/control/connection_registry.h"
#include "client/pool/pool.h"

namespace isopool::client {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause(10);
constexpr milliseconds kLongestPause(1000);

// Between half of the pause and all of it.
milliseconds withJitter(milliseconds pause) {
  thread_local std::minstd_rand random(std::random_device{}());
  return milliseconds(
      std::uniform_int_distribution<int64_t>(pause.count() / 2, pause.count())(random));
}

}  // namespace

void Reconnection::start() {
  base::MutexLock lock(mutex_);
  const base::BlockedSignals blocked;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  ::pthread_setname_np(thread_.native_handle(), "isopool-attach");
}

void Reconnection::begin() noexcept {
  {
    base::MutexLock lock(mutex_);
    wanted_ = true;
    lastFailure_.clear();
  }
  changed_.notify_all();
}

void Reconnection::close() {
  std::jthread thread;
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
    thread.swap(thread_);
    thread.request_stop();
  }
  changed_.notify_all();
}

std::string Reconnection::lastFailure() const {
  base::MutexLock lock(mutex_);
  return lastFailure_;
}

void Reconnection::run(const std::stop_token& stop) {
  milliseconds pause(0);
  for (;;) {
    {
      base::MutexLock lock(mutex_);
      const auto woken = [&]() ISOPOOL_REQUIRES(mutex_) { return closed_ || wanted_; };
      if (pause.count() == 0) {
        changed_.wait(lock, woken);
        wanted_ = false;
      } else {
        changed_.wait_for(lock, withJitter(pause),
                          [&]() ISOPOOL_REQUIRES(mutex_) { return closed_; });
      }
      if (closed_) return;
    }
    const bool attached = attach(stop);
    pause = attached ? milliseconds(0) : std::clamp(pause * 2, kFirstPause, kLongestPause);
  }
}

// True if the pool has a connection that works, or needs none.
bool Reconnection::attach(const std::stop_token& stop) noexcept {
  try {
    if (!pool_.lacksConnection()) return true;
    pool_.attach(sharedConnection(pool_.settings(), pool_.spare(), pool_.eventLog(), stop));
    return true;
  } catch (const std::exception& failure) {
    try {
      note(failure);
    } catch (const std::bad_alloc&) {
      // The next attempt reports its own failure.
    }
    return false;
  }
}

void Reconnection::note(const std::exception& failure) {
  const std::string text = failure.what();
  {
    base::MutexLock lock(mutex_);
    if (closed_ || lastFailure_ == text) return;
    lastFailure_ = text;
  }
  pool_.eventLog().write(LogLevel::kWarning, [&] { return "not attached again yet: " + text; });
}

}  // namespace isopool::client
