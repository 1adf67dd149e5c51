// SPDX-License-Identifier: BSD-3-Clause
// A pool whose supervisor is about to end: accepted calls continue, new ones are refused or wait
// for the next connection.
#include <algorithm>
#include <utility>

#include "client/pool/async_executor.h"
#include "client/pool/pool.h"
#include "client/program/process_fork.h"
#include "isopool/errors.h"

namespace isopool::client {

bool Pool::drain(const std::string& text) {
  base::MutexLock lock(mutex_);
  refusal_ = text;
  awayLocked();
  const std::shared_ptr<AsyncExecutor> executor = executor_;
  lock.unlock();
  const bool executorDrained =
      !executor || executor->drain(reconnects() ? "" : text, [weak = weak_from_this()] {
        const auto pool = weak.lock();
        if (!pool) return;
        pool->executorHasDrained();
      });
  lock.lock();
  executorDrained_ = executorDrained_ || executorDrained;
  draining_ = !drainedLocked();
  return !draining_;
}

void Pool::executorHasDrained() {
  const Ending ending(*this);
  executorDrained_ = true;
}

// True if every call that was accepted before the supervisor's notice has ended.
bool Pool::drainedLocked() const {
  return executorDrained_ && waiters_.empty() && broadcasts_ == 0 &&
         std::all_of(slots_.begin(), slots_.end(),
                     [](const auto& slot) { return slot->inFlight == 0; });
}

Pool::Broadcast::Broadcast(Pool& pool, const Deadline& deadline) : pool_(pool) {
  base::MutexLock lock(pool_.ownMutex());
  pool_.admitLocked(deadline, nullptr, lock);
  ++pool_.broadcasts_;
}

Pool::Broadcast::~Broadcast() {
  if (pool_.generation_ != forkGeneration()) return;
  const Ending ending(pool_);
  --pool_.broadcasts_;
}

Pool::Ending::Ending(Pool& pool) : pool_(pool) { pool_.mutex_.lock(); }

// Clang knows of the mutex only in the scope that this ends.
Pool::Ending::~Ending() ISOPOOL_LOCKS_UNCHECKED {
  const std::shared_ptr<SupervisorConnection> drained = pool_.endDrainLocked();
  pool_.mutex_.unlock();
  if (drained) drained->drained();
}

// If the last accepted call has ended, returns the connection: the caller calls drained() there,
// without the lock.
std::shared_ptr<SupervisorConnection> Pool::endDrainLocked() {
  if (!draining_ || !drainedLocked()) return nullptr;
  draining_ = false;
  return connection_;
}

}  // namespace isopool::client
