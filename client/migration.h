// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <memory>

#include "client/pool.h"

namespace isopool::client {

/// The way of one call of a pool to its worker. A request that its worker does not start within
/// milliseconds looks for another one: the pool reserves a place for it with the worker that is
/// free first, before any call that has no worker yet. Then its thread takes the request back,
/// which fails if it has started, and makes it there.
///
/// One for each call, over all workers that it is tried on. For the thread that makes the call.
class Migration {
 public:
  /// `accepted`: as Pool::reserveWorker() has it.
  explicit Migration(Pool& pool, bool accepted = false)
      : pool_(pool), possible_(pool.slots().size() > 1), accepted_(accepted) {}
  ~Migration() { stay(); }
  Migration(const Migration&) = delete;
  Migration& operator=(const Migration&) = delete;

  /// The reserved place if the call has left its worker for it, else a reservation that is waited
  /// for. Throws as Pool::reserveWorker().
  Pool::WorkerReservation nextReservation(const Deadline& deadline);
  /// The call is about to be published with the worker of that reservation.
  void begin(Clock::time_point now) {
    if (possible_) nextLook_ = now + patience_;
  }
  /// False if there is no other worker.
  bool possible() const { return possible_; }
  /// True if it was taken back and has a place elsewhere.
  bool left() const { return left_; }

  // For the channel: when the thread is to ask for a place, and what came of it.

  Clock::time_point nextLook() const {
    return found_.load(std::memory_order_acquire) ? Clock::time_point() : nextLook_;
  }
  bool due() const { return nextLook_ != kNever && Clock::now() >= nextLook(); }
  bool findPlace(WorkerLink& channel, PendingRequest& request);
  /// The same for a call that waits until another thread has prepared its worker.
  bool findPlace();
  void leave() { left_ = true; }
  void stay();
  void requestEnded() {
    if (!left_) stay();
  }

 private:
  friend class Pool;

  static constexpr Clock::time_point kNever = Clock::time_point::max();

  // For the pool, with its mutex: a place in this slot is reserved.
  void give(std::shared_ptr<WorkerSlot> slot);

  Pool& pool_;
  const bool possible_;
  bool accepted_;  // has had a turn, or did not need one for that
  Clock::duration patience_{};
  Clock::time_point nextLook_ = kNever;
  bool asked_ = false;  // the pool may know it
  bool left_ = false;

  // Guarded by the pool's mutex.
  const WorkerSlot* from_ = nullptr;
  std::shared_ptr<WorkerSlot> to_;  // where a place is reserved
  WorkerLink* channel_ = nullptr;   // that is to wake the call's thread; null: it looks by itself
  PendingRequest* request_ = nullptr;
  std::atomic<bool> found_{false};  // changes with to_
};

}  // namespace isopool::client
