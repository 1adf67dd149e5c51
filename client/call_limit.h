// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "isopool/errors.h"

namespace isopool::client {

/// How many calls a connection may have in flight, as the operator of a shared supervisor says:
/// calls that run, that wait for a worker, and asynchronous calls without an outcome. Any thread.
/// Without a limit the pointer to it is null, and nothing is counted.
class CallLimit {
 public:
  explicit CallLimit(uint32_t most) : most_(most) {}

  /// Counts as a call in flight as long as it lives. Throws LimitExceeded.
  class Place {
   public:
    explicit Place(CallLimit* limit) : limit_(limit) {
      if (limit_ != nullptr) limit_->enter();
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() {
      if (limit_ != nullptr) limit_->inFlight_.fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    CallLimit* const limit_;
  };

  /// This thread makes a call that has its Place: what it asks of workers meanwhile is part of it.
  class Scope {
   public:
    explicit Scope(const CallLimit* limit) : outer_(std::exchange(current_, limit)) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { current_ = outer_; }

   private:
    const CallLimit* const outer_;
  };

  /// The call that this thread makes from here on, unless it is part of another one. Throws
  /// LimitExceeded.
  class Call {
   public:
    explicit Call(CallLimit* limit) {
      if (limit == nullptr) return;
      if (limit != current_) place_.emplace(limit);
      scope_.emplace(limit);
    }

   private:
    std::optional<Place> place_;
    std::optional<Scope> scope_;
  };

 private:
  void enter() {
    if (inFlight_.fetch_add(1, std::memory_order_relaxed) < most_) return;
    inFlight_.fetch_sub(1, std::memory_order_relaxed);
    throw LimitExceeded("call refused: this program already has " + std::to_string(most_) +
                        " calls in flight, the most that its supervisor allows "
                        "(limits.calls, ISOPOOL_CLIENT_CALLS)");
  }

  inline static thread_local const CallLimit* current_ = nullptr;
  const uint32_t most_;
  std::atomic<uint32_t> inFlight_{0};
};

}  // namespace isopool::client
