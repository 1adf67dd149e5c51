// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/replica_tracker.h"

#include <algorithm>
#include <utility>

#include "base/without_cancellation.h"

namespace isopool::client {

namespace {

constexpr std::chrono::milliseconds kLongestSleep(100);

thread_local bool restoring = false;

}  // namespace

ReplicaTracker::Restoring::Restoring(bool yes)
    : outer_(std::exchange(restoring, restoring || yes)) {}
ReplicaTracker::Restoring::~Restoring() { restoring = outer_; }
bool ReplicaTracker::thisThreadRestores() { return restoring; }

void ReplicaTracker::begun(const WorkerLink& channel) {
  base::MutexLock lock(mutex_);
  Life& life = replicas_.at(channel.slot());
  const uint64_t earlier = std::exchange(life.link, channel.number());
  if (earlier == 0 || earlier == life.link) return;
  rebuilt_.fetch_add(1, std::memory_order_relaxed);
  // Also if the program had not restored the object in the previous life.
  life.state = callback_ ? State::kRebuilt : State::kWhole;
  changedLocked();
}

void ReplicaTracker::unloaded(uint32_t slot) {
  base::MutexLock lock(mutex_);
  replicas_.at(slot) = Life{};
  changedLocked();
}

void ReplicaTracker::onRebuilt(Callback callback) {
  checkNotForked(generation_);
  base::MutexLock lock(mutex_);
  callback_ = callback ? std::make_shared<const Callback>(std::move(callback)) : nullptr;
}

void ReplicaTracker::changedLocked() {
  const auto open = std::count_if(replicas_.begin(), replicas_.end(),
                                  [](const Life& life) { return life.state != State::kWhole; });
  unrestored_.store(static_cast<uint32_t>(open), std::memory_order_release);
  changed_.notify_all();
}

void ReplicaTracker::restoreNow(const WorkerLink& channel, const Deadline& deadline) {
  if (restoring) return;
  std::shared_ptr<const Callback> callback;
  if (!beginRestoring(channel, deadline, callback)) return;
  try {
    const Restoring scope;
    if (callback) (*callback)(channel.slot());
  } catch (...) {
    endRestoring(channel, State::kRebuilt);
    throw;
  }
  endRestoring(channel, State::kWhole);
}

// Waits while another thread restores the state. True if this thread is to do it with `callback`.
bool ReplicaTracker::beginRestoring(const WorkerLink& channel, const Deadline& deadline,
                                    std::shared_ptr<const Callback>& callback) {
  const base::WithoutCancellation complete;
  base::MutexLock lock(mutex_);
  Life& life = replicas_.at(channel.slot());
  for (;;) {
    // The use that follows finds a dead worker or a passed deadline again.
    if (life.link != channel.number() || life.state == State::kWhole || channel.dead() ||
        isPast(deadline)) {
      return false;
    }
    if (life.state == State::kRebuilt) break;
    const auto next = Clock::now() + kLongestSleep;
    changed_.wait_until(lock, deadline ? std::min(*deadline, next) : next);
  }
  callback = callback_;
  life.state = State::kBeingRestored;
  return true;
}

void ReplicaTracker::endRestoring(const WorkerLink& channel, State state) {
  base::MutexLock lock(mutex_);
  Life& life = replicas_.at(channel.slot());
  // Not if the worker died meanwhile and the slot's next worker has the object already.
  if (life.link == channel.number()) life.state = state;
  changedLocked();
}

}  // namespace isopool::client
