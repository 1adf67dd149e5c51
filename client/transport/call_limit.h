// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "isopool/errors.h"

namespace isopool::client {

/// The limit of calls that a connection may have in flight, set by the operator of a shared
/// supervisor. In flight are calls that run or wait for a worker, and asynchronous calls without an
/// outcome. Any thread. No member blocks: a call above the limit is refused and does not wait. A
/// private supervisor sets no limit: the pointer to it is null there, and nothing is counted.
///
/// The limit is this process's own check of what the supervisor's Welcome allows. A CallLimit must
/// outlive its Places, Scopes and Calls.
class CallLimit {
 public:
  /// `most`: 0 for no limit.
  explicit CallLimit(uint32_t most) : most_(most) {}
  /// From here on calls are refused by this limit; those in flight continue. 0: no limit.
  void limitTo(uint32_t most) { most_.store(most, std::memory_order_relaxed); }
  uint32_t inFlight() const { return inFlight_.load(std::memory_order_relaxed); }

  /// Counts as one call in flight as long as it lives, on whichever thread it is destroyed. The
  /// constructor throws LimitExceeded; then nothing is counted.
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

  /// While it lives, the calling thread makes a call that already has its Place: the requests to
  /// the same connection that the thread makes meanwhile are part of that call and not counted.
  /// Destroy it on the thread that made it, in reverse order.
  class Scope {
   public:
    explicit Scope(const CallLimit* limit) : outer_(std::exchange(current_, limit)) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { current_ = outer_; }

   private:
    const CallLimit* const outer_;
  };

  /// The call that the calling thread makes while this lives: a Place and a Scope, without a Place
  /// if the thread is inside another call of the same connection. The constructor throws
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
    const uint32_t most = most_.load(std::memory_order_relaxed);
    const uint32_t before = inFlight_.fetch_add(1, std::memory_order_relaxed);
    if (before < most || most == 0) return;
    inFlight_.fetch_sub(1, std::memory_order_relaxed);
    throw LimitExceeded("call refused: this program already has " + std::to_string(most) +
                        " calls in flight, the most that its supervisor allows "
                        "(limits.calls, ISOPOOL_CLIENT_CALLS)");
  }

  inline static thread_local const CallLimit* current_ = nullptr;
  std::atomic<uint32_t> most_;
  std::atomic<uint32_t> inFlight_{0};
};

}  // namespace isopool::client
