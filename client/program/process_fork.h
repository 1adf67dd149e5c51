// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "isopool/errors.h"

namespace isopool::client {

/// The number of forks between the first process that used isopool and this one. An object that was
/// made in another generation belongs to a parent process: its threads do not exist here, its locks
/// may be held by threads that do not exist here, and only the parent may write its shared words.
/// Any thread.
uint32_t forkGeneration() noexcept;

/// A forked child uses an inherited object that works only in the process that made it.
class ForkedError : public Error {
 public:
  using Error::Error;
};

/// Throws ForkedError, which names `what`, if `created` is not this process's generation.
void checkNotForked(uint32_t created, const char* what = "InterpreterManager");

/// A deleter that deletes an object only in the process that made it. In a forked child it does
/// nothing, and the object's memory is lost there: a destructor would wait for threads that do not
/// exist, lock mutexes that such threads hold, and unmap addresses whose mappings were not
/// inherited.
template <typename T>
class EndInOwnProcess {
 public:
  void operator()(T* object) const {
    if (generation_ == forkGeneration()) delete object;
  }

 private:
  const uint32_t generation_ = forkGeneration();
};

/// A shared object with the deleter EndInOwnProcess.
template <typename T, typename... Arguments>
std::shared_ptr<T> makeForThisProcess(Arguments&&... arguments) {
  return {new T(std::forward<Arguments>(arguments)...), EndInOwnProcess<T>()};
}

/// One T for each process. A forked child starts with a new T, because a thread of its parent may
/// have held a lock in the old one. For static variables; the T is never destroyed. Any thread.
template <typename T>
class PerProcess {
 public:
  /// Without a lock, so that it works in a child whatever the parent's threads were doing. Two
  /// threads may construct a T at the same time; one of the two is destroyed.
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

/// A setting of the program that any thread may read and change. A forked child inherits its value,
/// even if a thread of the parent was changing it during the fork. For static variables.
template <typename T>
class InheritedSetting {
 public:
  using Value = std::shared_ptr<const T>;

  /// The present value, which stays valid while the caller holds it; null before the first change.
  Value get() {
    base::MutexLock lock(mutex_.get());
    const Value* current = current_.load(std::memory_order_acquire);
    return current != nullptr ? *current : nullptr;
  }

  /// `make` gets the present value and returns the new one; it runs under the setting's lock and
  /// must not use the setting. If it throws, nothing changes. Returns the value before: it may own
  /// a user's objects, so it is destroyed by the caller, without a lock.
  template <typename Make>
  Value change(Make&& make) {
    base::MutexLock lock(mutex_.get());
    const Value* current = current_.load(std::memory_order_acquire);
    auto fresh = std::make_unique<const Value>(make(current != nullptr ? *current : nullptr));
    // A fork may happen between any two steps, so current_ always points to a complete value.
    current_.store(fresh.release(), std::memory_order_release);
    const std::unique_ptr<const Value> old(current);
    return old ? *old : nullptr;
  }

 private:
  PerProcess<base::Mutex> mutex_;
  std::atomic<const Value*> current_ ISOPOOL_GUARDED_BY(mutex_.get()){nullptr};
};

}  // namespace isopool::client
