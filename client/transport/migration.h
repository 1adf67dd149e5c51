// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <utility>

#include "client/transport/deadline.h"

namespace isopool::client {

class WorkerLink;
struct PendingRequest;

/// The search for another worker while a worker does not start a request, as the code that waits
/// for the worker sees it: WorkerLink, and Pool while a worker is prepared. PoolMigration knows the
/// pool. Only the thread that makes the call uses it, except for wake(). No member blocks, except
/// that findPlace() and the end of a search lock the pool for a moment.
///
/// A search begins with findPlace() and ends in one of two ways: leave(), after which the call uses
/// the reserved place, or stay(), after which the place is free for other calls.
class Migration {
 public:
  virtual ~Migration() = default;
  Migration(const Migration&) = delete;
  Migration& operator=(const Migration&) = delete;

  /// When to call findPlace() next; in the past if a place is reserved.
  Clock::time_point nextLook() const {
    return found_.load(std::memory_order_acquire) ? Clock::time_point() : nextLook_;
  }
  /// True if findPlace() is to be called now. Reads the clock.
  bool due() const { return nextLook_ != kNever && Clock::now() >= nextLook(); }
  /// Asks for a place at another worker. True if one is reserved; else one is reserved later, and
  /// the thread that waits for `request` is woken then. `channel` and `request` must stay valid
  /// until the search has ended.
  virtual bool findPlace(WorkerLink& channel, PendingRequest& request) = 0;
  /// The call leaves its worker and gets the reserved place. Call only if findPlace() returned
  /// true and the request was taken back.
  void leave() { left_ = true; }
  /// True if the call has left its worker for a place that is reserved elsewhere.
  bool left() const { return left_; }
  /// The call stays with its worker: ends the search, and a reserved place is free again. May be
  /// called without a search; then it only stops due() from returning true.
  void stay() {
    nextLook_ = kNever;
    if (std::exchange(asked_, false)) endSearch();
  }
  /// The place that is reserved, if one is, is free again, and the next findPlace() begins another
  /// search. Before a function of the program runs on this thread: a call that it makes may need
  /// that place.
  void pause() {
    if (std::exchange(asked_, false)) endSearch();
  }
  /// The request has ended, or was taken back. Ends the search unless the call has left.
  void requestEnded() {
    if (!left_) stay();
  }

 protected:
  static constexpr Clock::time_point kNever = Clock::time_point::max();

  Migration() = default;

  /// Called once for each search that has begun: no place is reserved for the call afterwards.
  virtual void endSearch() = 0;
  /// Wakes the thread that waits for the request. Any thread.
  static void wake(WorkerLink& channel, PendingRequest& request);

  Clock::time_point nextLook_ = kNever;
  bool asked_ = false;  // the search has begun
  bool left_ = false;
  std::atomic<bool> found_{false};  // a place is reserved
};

}  // namespace isopool::client
