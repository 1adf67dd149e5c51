// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include "client/deadline.h"

namespace isopool::client {

/// Whether a worker is stopped, judged from calls that it has not taken before their deadlines: no
/// memory, no clock, no thread.
class UnheardCalls {
 public:
  /// So long no healthy worker leaves a call lying while it sleeps, however loaded the machine is.
  static constexpr std::chrono::seconds kLongestSleep{1};

  /// What the worker says of itself.
  struct Worker {
    bool sleeps;     ///< at a moment before `taken` was read
    uint32_t taken;  ///< requests that it has taken, free-running
  };

  /// The request of this number on its channel, made at `calledAt`, is given up at `now`. True if
  /// the worker has slept for too long through this request and those that were given up before it.
  bool tooMany(uint64_t request, Clock::time_point calledAt, const Worker& worker,
               Clock::time_point now) {
    const bool lies = static_cast<int32_t>(static_cast<uint32_t>(request) - worker.taken) > 0;
    if (!lies || !worker.sleeps) {
      since_.reset();
      return false;
    }
    // Awake it takes what lies there: if it has taken nothing since, this is the same sleep.
    if (!since_ || taken_ != worker.taken) {
      since_ = calledAt;
      taken_ = worker.taken;
    }
    return now - *since_ >= kLongestSleep;
  }

 private:
  std::optional<Clock::time_point> since_;  // a call of then still lies there
  uint32_t taken_ = 0;
};

}  // namespace isopool::client
