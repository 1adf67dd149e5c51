// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "isopool/errors.h"

namespace isopool::client {

/// How many calls a connection may have in flight, as the operator of a shared supervisor says. Any
/// thread.
class CallLimit {
 public:
  explicit CallLimit(uint32_t most) : most_(most) {}

  /// Counts as a call in flight as long as it lives. Without a limit (null) it does nothing. Throws
  /// LimitExceeded.
  class Call {
   public:
    explicit Call(CallLimit* limit) : limit_(limit) {
      if (limit_ == nullptr) return;
      if (limit_->inFlight_.fetch_add(1, std::memory_order_relaxed) < limit_->most_) return;
      limit_->inFlight_.fetch_sub(1, std::memory_order_relaxed);
      throw LimitExceeded("the program has " + std::to_string(limit_->most_) +
                          " calls in flight, which is all that the supervisor lets it have "
                          "(limits.calls, ISOPOOL_CLIENT_CALLS)");
    }
    ~Call() {
      if (limit_ != nullptr) limit_->inFlight_.fetch_sub(1, std::memory_order_relaxed);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    CallLimit* const limit_;
  };

 private:
  const uint32_t most_;
  std::atomic<uint32_t> inFlight_{0};
};

}  // namespace isopool::client
