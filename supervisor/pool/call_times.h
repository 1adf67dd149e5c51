// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <utility>

#include "base/ids.h"
#include "base/running_time.h"

namespace isopool::supervisor {

/// How long the workers' present calls have run, without the time in which this process did not
/// run (base::RunningTime). Looked at in rounds: look(), then ran() for each running call. Pure.
class CallTimes {
 public:
  /// `between`: the time between two rounds.
  explicit CallTimes(std::chrono::nanoseconds between) : time_(between), between_(between) {}

  std::chrono::nanoseconds between() const { return between_; }
  void look(base::TimePoint now) {
    const std::chrono::nanoseconds before = time_.lost();
    time_.look(now);
    lostInRound_ = time_.lost() - before;
    known_ = std::exchange(running_, {});
  }
  /// `byClock`: how long this call of that worker has run by the clock.
  std::chrono::nanoseconds ran(base::Epoch worker, uint64_t client, uint64_t sequence,
                               std::chrono::nanoseconds byClock) {
    Call call{client, sequence, time_.lost() - std::min(lostInRound_, byClock)};
    const auto known = known_.find(worker);
    if (known != known_.end() && known->second.client == client &&
        known->second.sequence == sequence) {
      call = known->second;
    }
    running_.insert_or_assign(worker, call);
    return byClock - (time_.lost() - call.lostBefore);
  }

 private:
  struct Call {
    uint64_t client;
    uint64_t sequence;
    std::chrono::nanoseconds lostBefore;  ///< before the call began
  };

  base::RunningTime time_;
  std::chrono::nanoseconds between_;
  std::chrono::nanoseconds lostInRound_{0};
  std::map<base::Epoch, Call> known_;    // in the last round
  std::map<base::Epoch, Call> running_;  // in this one
};

}  // namespace isopool::supervisor
