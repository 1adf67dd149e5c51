// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "client/pool/pool.h"
#include "client/transport/migration.h"

namespace isopool::client {

/// Moves one call of a pool to another worker if its worker does not start the request within
/// milliseconds. The pool then reserves a place for the call at the worker that becomes free first;
/// such calls come before calls that have no worker yet. When a place is reserved, the call's
/// thread takes the request back and makes it there. If the request has started, it can't be taken
/// back: the call stays, and the place is free again.
///
/// One object per call, for all workers on which the call is tried. Only the thread that makes the
/// call uses it, except for give() and the members that the pool's mutex guards. `pool` must
/// outlive it. The destructor gives back a place that the call did not use.
class PoolMigration final : public Migration {
 public:
  /// `accepted`: see Pool::reserveWorker().
  explicit PoolMigration(Pool& pool, bool accepted = false)
      : pool_(pool), possible_(pool.slots().size() > 1), accepted_(accepted) {}
  ~PoolMigration() override { stay(); }

  /// If the call has left its worker, the place that is reserved elsewhere, unless the worker there
  /// has died. Else waits as Pool::reserveWorker(), and throws what that throws.
  Pool::WorkerReservation nextReservation(const Deadline& deadline,
                                          CancellationToken* cancellation = nullptr,
                                          EntryTurn* turn = nullptr);
  /// Call before a request is published to the reserved worker, or before the thread waits for that
  /// worker's preparation: from now on the time counts after which the call looks for another one.
  void begin(Clock::time_point now) {
    if (possible_) nextLook_ = now + patience_;
  }
  /// False if the pool has no other worker.
  bool possible() const { return possible_; }
  /// Does not wait: the search stays in the pool's list until it has a place or ends.
  bool findPlace(WorkerLink& channel, PendingRequest& request) override;
  /// The same for a call that waits until another thread has prepared its worker: the pool does not
  /// wake this thread, which has to look again at nextLook().
  bool findPlace();

 private:
  friend class Pool;

  void endSearch() override { pool_.forgetPlace(*this); }
  // The pool calls this, with its mutex locked, when it has reserved a place in `slot`.
  void give(std::shared_ptr<WorkerSlot> slot);

  Pool& pool_;
  const bool possible_;
  bool accepted_;  // the call must not be refused: it was accepted before, or has had a worker
  Clock::duration patience_{};

  // Guarded by the pool's mutex while the pool has a pointer to this.
  const WorkerSlot* from_ = nullptr;
  std::shared_ptr<WorkerSlot> to_;  // where a place is reserved; found_ is set with it
  WorkerLink* channel_ = nullptr;   // wakes the call's thread; null: that thread looks by itself
  PendingRequest* request_ = nullptr;
};

}  // namespace isopool::client
