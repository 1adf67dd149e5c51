// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include "client/transport/deadline.h"

namespace isopool::client {

/// Decides whether a worker is stopped (by SIGSTOP, a debugger, a frozen control group), from calls
/// that it has not taken before their deadlines: a stopped worker is alive, so its liveness word
/// does not show it. An awake worker that runs a long call is never taken for a stopped one.
///
/// Times are counted by base::RunningTime: a stop of this process does not show a stopped worker.
///
/// Pure: no memory, clock or thread of its own. The caller serialises the calls. What the worker
/// publishes may be invalid; at worst the decision about this worker is wrong then.
class UnheardCalls {
 public:
  /// Longer than a healthy worker leaves a call in its ring while it sleeps, however loaded the
  /// machine is.
  static constexpr std::chrono::seconds kLongestSleep{1};

  /// The state that the worker publishes about itself.
  struct Worker {
    bool sleeps;     ///< at a moment before `taken` was read
    uint32_t taken;  ///< the number of requests that it has taken, free-running
  };

  /// Call when the request of this number on the channel, made at `calledAt`, is given up at `now`.
  /// True if the worker has slept for kLongestSleep while this request, or one that was given up
  /// before it, waited in its ring.
  bool tooMany(uint64_t request, std::chrono::nanoseconds calledAt, const Worker& worker,
               std::chrono::nanoseconds now) {
    const bool lies = static_cast<int32_t>(static_cast<uint32_t>(request) - worker.taken) > 0;
    if (!lies || !worker.sleeps) {
      since_.reset();
      return false;
    }
    // An awake worker takes what is in its ring: if it has taken nothing since, it is still the
    // same sleep.
    if (!since_ || taken_ != worker.taken) {
      since_ = calledAt;
      taken_ = worker.taken;
    }
    return now - *since_ >= kLongestSleep;
  }

 private:
  std::optional<std::chrono::nanoseconds> since_;  // a call that was made then is still in the ring
  uint32_t taken_ = 0;
};

}  // namespace isopool::client
