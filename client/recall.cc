// SPDX-License-Identifier: BSD-3-Clause
#include "client/recall.h"

#include "client/channel.h"

namespace isopool::client {

bool Recall::request() {
  std::lock_guard lock(mutex_);
  if (over_) return false;
  if (requested()) return true;
  if (channel_ != nullptr && !channel_->memory().end().recall(sequence_)) return false;
  requested_.store(true, std::memory_order_release);
  if (channel_ != nullptr) channel_->wakeWaiter(*exchange_);
  return true;
}

bool Recall::end() {
  std::lock_guard lock(mutex_);
  over_ = true;
  return requested();
}

void Recall::enter(Channel& channel, PendingRequest& request, uint64_t sequence) {
  channel_ = &channel;
  exchange_ = &request;
  sequence_ = sequence;
}

void Recall::leave(RequestOutcome outcome) {
  std::lock_guard lock(mutex_);
  channel_ = nullptr;
  over_ = outcome != RequestOutcome::kWithdrawn && outcome != RequestOutcome::kNeverStarted;
}

}  // namespace isopool::client
