// SPDX-License-Identifier: BSD-3-Clause
// A pool whose supervisor is about to end: accepted calls continue, new ones are refused.
#include <algorithm>
#include <utility>

#include "client/pool/async_executor.h"
#include "client/pool/pool.h"
#include "client/program/process_fork.h"
#include "isopool/errors.h"

namespace isopool::client {

// Call for each new call or session.
void Pool::admitLocked() {
  if (!refusal_.empty()) throw SupervisorLost(refusal_);
}

bool Pool::drain(const std::string& text) {
  std::unique_lock lock(mutex_);
  refusal_ = text;
  const std::shared_ptr<AsyncExecutor> executor = executor_;
  lock.unlock();
  const bool executorDrained = !executor || executor->drain(text, [weak = weak_from_this()] {
    const auto pool = weak.lock();
    if (!pool) return;
    std::unique_lock again(pool->mutex_);
    pool->executorDrained_ = true;
    pool->endDrain(again);
  });
  lock.lock();
  executorDrained_ = executorDrained_ || executorDrained;
  draining_ = !drainedLocked();
  return !draining_;
}

// True if every call that was accepted before the supervisor's notice has ended.
bool Pool::drainedLocked() const {
  return executorDrained_ && waiters_.empty() && broadcasts_ == 0 &&
         std::all_of(slots_.begin(), slots_.end(),
                     [](const auto& slot) { return slot->inFlight == 0; });
}

Pool::Broadcast::Broadcast(Pool& pool) : pool_(pool) {
  const auto lock = pool_.lockUsable();
  pool_.admitLocked();
  ++pool_.broadcasts_;
}

Pool::Broadcast::~Broadcast() {
  if (pool_.generation_ != forkGeneration()) return;
  std::unique_lock lock(pool_.mutex_);
  --pool_.broadcasts_;
  pool_.endDrain(lock);
}

// If the last accepted call has ended, reports that to the connection, with `lock` released.
void Pool::endDrain(std::unique_lock<std::mutex>& lock) {
  if (!draining_ || !drainedLocked()) return;
  draining_ = false;
  const auto connection = connection_;
  lock.unlock();
  if (connection) connection->drained();
}

}  // namespace isopool::client
