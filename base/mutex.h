// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

// The attributes by which clang checks locking rules (-Wthread-safety; tests/architecture/clang.py
// runs it). Other compilers ignore them. Source: clang's manual, "Thread Safety Analysis".
#if defined(__clang__)
#define ISOPOOL_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define ISOPOOL_THREAD_SAFETY(attribute)
#endif
/// After a member: it is read and written under this mutex only.
#define ISOPOOL_GUARDED_BY(mutex) ISOPOOL_THREAD_SAFETY(guarded_by(mutex))
/// After a function: its caller holds these mutexes.
#define ISOPOOL_REQUIRES(...) ISOPOOL_THREAD_SAFETY(requires_capability(__VA_ARGS__))
/// After a function: it locks or unlocks these mutexes, or those of the object itself.
#define ISOPOOL_ACQUIRES(...) ISOPOOL_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define ISOPOOL_RELEASES(...) ISOPOOL_THREAD_SAFETY(release_capability(__VA_ARGS__))
/// After a function: it returns this mutex.
#define ISOPOOL_RETURNS(mutex) ISOPOOL_THREAD_SAFETY(lock_returned(mutex))
/// After a function: clang does not check its body. State the reason.
#define ISOPOOL_LOCKS_UNCHECKED ISOPOOL_THREAD_SAFETY(no_thread_safety_analysis)

namespace isopool::base {

/// std::mutex, whose locking rules clang checks. Not recursive. A forked child inherits it as it
/// was, perhaps locked by a thread that does not exist there: see client::PerProcess.
class ISOPOOL_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() ISOPOOL_ACQUIRES() { mutex_.lock(); }
  void unlock() ISOPOOL_RELEASES() { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() ISOPOOL_THREAD_SAFETY(try_acquire_capability(true)) {
    return mutex_.try_lock();
  }
  /// States that the calling thread holds the mutex, where clang can't see that. Does nothing.
  void assertHeld() const ISOPOOL_THREAD_SAFETY(assert_capability(this)) {}

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

/// Holds a mutex from its construction to its destruction, except between unlock() and lock().
/// Used by one thread. The destructor unlocks the mutex only if it is held then.
class ISOPOOL_THREAD_SAFETY(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ISOPOOL_ACQUIRES(mutex) : lock_(mutex.mutex_) {}
  /// Takes over a mutex that the calling thread has locked.
  MutexLock(Mutex& mutex, std::adopt_lock_t adopt) ISOPOOL_REQUIRES(mutex)
      : lock_(mutex.mutex_, adopt) {}
  ~MutexLock() ISOPOOL_RELEASES() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() ISOPOOL_ACQUIRES() { lock_.lock(); }
  void unlock() ISOPOOL_RELEASES() { lock_.unlock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

/// std::condition_variable for a MutexLock. The lock is held again when a wait returns. Clang does
/// not see that a predicate runs under the lock: write ISOPOOL_REQUIRES(mutex) after its
/// parameters. As with the standard's, a wait without a predicate may return early. Any thread may
/// notify, with or without the lock.
class Condition {
 public:
  /// Without a time limit: the notifying thread must not be able to end without a notification.
  template <typename... Predicate>
  void wait(MutexLock& lock, Predicate&&... predicate) ISOPOOL_LOCKS_UNCHECKED {
    condition_.wait(lock.lock_, std::forward<Predicate>(predicate)...);
  }
  /// With a predicate: its last value. Without one: std::cv_status.
  template <typename Time, typename... Predicate>
  auto wait_for(MutexLock& lock, const Time& time,
                Predicate&&... predicate) ISOPOOL_LOCKS_UNCHECKED {
    return condition_.wait_for(lock.lock_, time, std::forward<Predicate>(predicate)...);
  }
  template <typename Time, typename... Predicate>
  auto wait_until(MutexLock& lock, const Time& time,
                  Predicate&&... predicate) ISOPOOL_LOCKS_UNCHECKED {
    return condition_.wait_until(lock.lock_, time, std::forward<Predicate>(predicate)...);
  }
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace isopool::base
