// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "isopool/errors.h"

namespace isopool::client {

/// Counts the forks between the first process that used isopool and this one. What was made in
/// another generation belongs to a parent process: its threads don't exist here, its locks may be
/// held by nobody, and its shared words are the parent's to write.
uint32_t forkGeneration() noexcept;

/// A process uses what it inherited from its parent and what works only there.
class ForkedError : public Error {
 public:
  using Error::Error;
};

/// Throws ForkedError, which names `what`, if `created` is not this process's generation.
void checkNotForked(uint32_t created, const char* what = "InterpreterManager");

/// Ends an object in the process that made it, and leaves it as it is in one that was forked from
/// that: there a destructor waits for threads that wait on its condition variables and do not
/// exist, locks what they hold, and unmaps addresses whose mappings were not inherited.
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

/// One T for each process: a forked one starts with a new T, because a thread of its parent may
/// have held the lock in the old one. To be made static. Any thread.
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

/// A setting of the program that any thread reads and changes. A forked process inherits it,
/// whatever the threads of its parent were doing with it. To be made static. Any thread.
template <typename T>
class InheritedSetting {
 public:
  using Value = std::shared_ptr<const T>;

  Value get() {
    std::lock_guard lock(mutex_.get());
    const Value* current = current_.load(std::memory_order_acquire);
    return current != nullptr ? *current : nullptr;
  }

  /// `make` is given the present value and returns the next one. The result is the value before:
  /// what it holds may be a user's, so that it must end without a lock.
  template <typename Make>
  Value change(Make&& make) {
    std::lock_guard lock(mutex_.get());
    const Value* current = current_.load(std::memory_order_acquire);
    auto fresh = std::make_unique<const Value>(make(current != nullptr ? *current : nullptr));
    // A fork may copy this process between any two steps: current_ always points to a whole value.
    current_.store(fresh.release(), std::memory_order_release);
    const std::unique_ptr<const Value> old(current);
    return old ? *old : nullptr;
  }

 private:
  PerProcess<std::mutex> mutex_;
  std::atomic<const Value*> current_{nullptr};
};

}  // namespace isopool::client
