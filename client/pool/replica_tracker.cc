// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/replica_tracker.h"

#include <algorithm>
#include <utility>

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
  std::lock_guard lock(mutex_);
  Life& life = replicas_.at(channel.slot());
  const uint64_t earlier = std::exchange(life.epoch, channel.epoch().value);
  if (earlier == 0 || earlier == life.epoch) return;
  rebuilt_.fetch_add(1, std::memory_order_relaxed);
  // Also if the program had not restored the object in the previous life.
  life.state = callback_ ? State::kRebuilt : State::kWhole;
  changedLocked();
}

void ReplicaTracker::unloaded(uint32_t slot) {
  std::lock_guard lock(mutex_);
  replicas_.at(slot) = Life{};
  changedLocked();
}

void ReplicaTracker::onRebuilt(Callback callback) {
  checkNotForked(generation_);
  std::lock_guard lock(mutex_);
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
  const uint64_t epoch = channel.epoch().value;
  std::unique_lock lock(mutex_);
  Life& life = replicas_.at(channel.slot());
  for (;;) {
    // The use that follows finds a dead worker or a passed deadline again.
    if (life.epoch != epoch || life.state == State::kWhole || channel.dead() || isPast(deadline)) {
      return;
    }
    if (life.state == State::kRebuilt) break;
    const auto next = Clock::now() + kLongestSleep;
    changed_.wait_until(lock, deadline ? std::min(*deadline, next) : next);
  }
  const auto callback = callback_;
  life.state = State::kBeingRestored;
  const auto settle = [&](State state) {
    lock.lock();
    // Not if the worker died meanwhile and the slot's next worker has the object already.
    if (life.epoch == epoch) life.state = state;
    changedLocked();
  };
  lock.unlock();
  try {
    const Restoring scope;
    if (callback) (*callback)(channel.slot());
  } catch (...) {
    settle(State::kRebuilt);
    throw;
  }
  settle(State::kWhole);
}

}  // namespace isopool::client
