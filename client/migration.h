// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <memory>

#include "client/pool.h"

namespace isopool::client {

/// Moves one call of a pool to another worker if its worker does not start the request within
/// milliseconds. The pool then reserves a place for the call at the worker that becomes free first;
/// such calls come before calls that have no worker yet. When a place is reserved, the call's
/// thread takes the request back and makes it there. If the request has started, it can't be taken
/// back: the call stays, and the place is free again.
///
/// One object per call, for all workers on which the call is tried. Only the thread that makes the
/// call uses it, except for give() and the members that the pool's mutex guards.
class Migration {
 public:
  /// `accepted`: see Pool::reserveWorker().
  explicit Migration(Pool& pool, bool accepted = false)
      : pool_(pool), possible_(pool.slots().size() > 1), accepted_(accepted) {}
  ~Migration() { stay(); }
  Migration(const Migration&) = delete;
  Migration& operator=(const Migration&) = delete;

  /// If the call has left its worker, the place that is reserved elsewhere, unless the worker there
  /// has died. Else waits as Pool::reserveWorker(), and throws what that throws.
  Pool::WorkerReservation nextReservation(const Deadline& deadline);
  /// Call before a request is published to the reserved worker, or before the thread waits for that
  /// worker's preparation: from now on the time counts after which the call looks for another one.
  void begin(Clock::time_point now) {
    if (possible_) nextLook_ = now + patience_;
  }
  /// False if the pool has no other worker.
  bool possible() const { return possible_; }
  /// True if the call has left its worker for a place that is reserved elsewhere.
  bool left() const { return left_; }

  // For the code that waits for the worker: WorkerLink, and Pool while a worker is prepared.

  /// When to call findPlace() next; in the past if a place is reserved.
  Clock::time_point nextLook() const {
    return found_.load(std::memory_order_acquire) ? Clock::time_point() : nextLook_;
  }
  bool due() const { return nextLook_ != kNever && Clock::now() >= nextLook(); }
  /// Asks the pool for a place at another worker. True if one is reserved; else the pool reserves
  /// one later and wakes the thread that waits for `request`.
  bool findPlace(WorkerLink& channel, PendingRequest& request);
  /// The same for a call that waits until another thread has prepared its worker: the pool does not
  /// wake this thread, which has to look again at nextLook().
  bool findPlace();
  /// The call leaves its worker: nextReservation() gives it the reserved place.
  void leave() { left_ = true; }
  /// The call stays with its worker: ends the search, and a reserved place is free again.
  void stay();
  /// The request has ended, or was taken back.
  void requestEnded() {
    if (!left_) stay();
  }

 private:
  friend class Pool;

  static constexpr Clock::time_point kNever = Clock::time_point::max();

  // The pool calls this, with its mutex locked, when it has reserved a place in `slot`.
  void give(std::shared_ptr<WorkerSlot> slot);

  Pool& pool_;
  const bool possible_;
  bool accepted_;  // the call must not be refused: it was accepted before, or has had a worker
  Clock::duration patience_{};
  Clock::time_point nextLook_ = kNever;
  bool asked_ = false;  // the pool may have a pointer to this
  bool left_ = false;

  // Guarded by the pool's mutex while the pool has a pointer to this.
  const WorkerSlot* from_ = nullptr;
  std::shared_ptr<WorkerSlot> to_;  // where a place is reserved
  WorkerLink* channel_ = nullptr;   // wakes the call's thread; null: that thread looks by itself
  PendingRequest* request_ = nullptr;
  std::atomic<bool> found_{false};  // set with to_; cleared when the search ends
};

}  // namespace isopool::client
