// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace isopool::client {

/// Counts the forks between the first process that used isopool and this one. What was made in
/// another generation belongs to a parent process: its threads don't exist here, its locks may be
/// held by nobody, and its shared words are the parent's to write.
uint32_t forkGeneration() noexcept;

/// Throws Error if `generation` is not this process's.
void checkNotForked(uint32_t generation);

/// Ends an object in the process that made it, and leaves it as it is in one that was forked from
/// that: there a destructor waits for threads that wait on its condition variables and do not exist,
/// locks what they hold, and unmaps addresses whose mappings were not inherited.
template <typename T>
class EndInOwnProcess {
 public:
  void operator()(T* object) const {
    if (generation_ == forkGeneration()) delete object;
  }

 private:
  const uint32_t generation_ = forkGeneration();
};

/// A shared object that EndInOwnProcess ends.
template <typename T, typename... Arguments>
std::shared_ptr<T> makeForThisProcess(Arguments&&... arguments) {
  return {new T(std::forward<Arguments>(arguments)...), EndInOwnProcess<T>()};
}

/// One T for each process: a forked one starts with a new T, because a thread of its parent may have
/// held the lock in the old one. To be made static. Any thread.
template <typename T>
class PerProcess {
 public:
  T& get() {
    const uint32_t generation = forkGeneration();
    Held* held = held_.load(std::memory_order_acquire);
    while (held == nullptr || held->generation != generation) {
      auto fresh = std::make_unique<Held>(generation);
      if (held_.compare_exchange_strong(held, fresh.get(), std::memory_order_acq_rel)) {
        return fresh.release()->value;
      }
    }
    return held->value;
  }

 private:
  struct Held {
    explicit Held(uint32_t generationOfOwner) : generation(generationOfOwner) {}
    const uint32_t generation;
    T value;
  };
  std::atomic<Held*> held_{nullptr};
};

}  // namespace isopool::client
