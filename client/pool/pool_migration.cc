// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/pool_migration.h"

#include <optional>
#include <utility>

namespace isopool::client {

namespace {

// Longer than a request waits behind a call of usual length: a worker gets a second call only if
// calls take less than a millisecond.
constexpr std::chrono::milliseconds kPatience(2);
// A worker that was idle starts the request at once, unless a session's step came first.
constexpr std::chrono::milliseconds kPatienceWithIdleWorker(10);
// Covers a wake-up that comes between the thread's look and its sleep, and the end of work that has
// no answer.
constexpr std::chrono::milliseconds kBetweenLooks(10);

}  // namespace

Pool::WorkerReservation PoolMigration::nextReservation(const Deadline& deadline,
                                                       CancellationToken* cancellation,
                                                       EntryTurn* turn) {
  auto reserved = left_ ? pool_.takeReserved(*this) : std::nullopt;
  stay();
  left_ = false;
  Pool::WorkerReservation reservation =
      reserved ? *std::move(reserved)
               : pool_.reserveWorker(deadline, accepted_, cancellation, turn,
                                     /*again=*/from_ != nullptr);
  accepted_ = true;
  from_ = reservation.slot().get();
  patience_ = reservation.idle() ? kPatienceWithIdleWorker : kPatience;
  return reservation;
}

bool PoolMigration::findPlace(WorkerLink& channel, PendingRequest& request) {
  nextLook_ = Clock::now() + kBetweenLooks;
  if (!std::exchange(asked_, true)) {
    channel_ = &channel;
    request_ = &request;
  }
  return pool_.reservePlace(*this);
}

bool PoolMigration::findPlace() {
  nextLook_ = Clock::now() + kBetweenLooks;
  if (!std::exchange(asked_, true)) channel_ = nullptr;
  return pool_.reservePlace(*this);
}

void PoolMigration::give(std::shared_ptr<WorkerSlot> slot) {
  to_ = std::move(slot);
  found_.store(true, std::memory_order_release);
  if (channel_ != nullptr) wake(*channel_, *request_);
}

}  // namespace isopool::client
