// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/cancellation_token.h"

#include "client/transport/worker_link.h"

namespace isopool::client {

bool CancellationToken::cancel() {
  base::MutexLock lock(mutex_);
  if (over_) return false;
  if (requested()) return true;
  if (channel_ != nullptr && !channel_->memory().end().recall(sequence_)) return false;
  requested_.store(true, std::memory_order_release);
  if (channel_ != nullptr) channel_->wakeWaiter(*request_);
  return true;
}

bool CancellationToken::stop() {
  base::MutexLock lock(mutex_);
  if (over_) return false;
  stopped_.store(true, std::memory_order_release);
  if (channel_ != nullptr) channel_->wakeWaiter(*request_);
  return true;
}

bool CancellationToken::looks() const {
  constexpr std::chrono::milliseconds kBetweenLooks(10);
  return stopped() || (interrupted_ != nullptr && Clock::now() - lastLook_ >= kBetweenLooks);
}

bool CancellationToken::stops() {
  if (stopped() || !looks()) return stopped();
  // From the end of the last one, so that one that takes long leaves time for the call.
  struct Looked {
    Clock::time_point& last;
    ~Looked() { last = Clock::now(); }
  } const looked{lastLook_};
  if ((*interrupted_)()) stopped_.store(true, std::memory_order_release);
  return stopped();
}

bool CancellationToken::end() {
  base::MutexLock lock(mutex_);
  over_ = true;
  return requested();
}

void CancellationToken::enter(WorkerLink& channel, PendingRequest& request, uint64_t sequence) {
  channel_ = &channel;
  request_ = &request;
  sequence_ = sequence;
}

void CancellationToken::leave(RequestOutcome outcome) {
  base::MutexLock lock(mutex_);
  channel_ = nullptr;
  over_ = outcome != RequestOutcome::kWithdrawn && outcome != RequestOutcome::kNeverStarted;
}

}  // namespace isopool::client
