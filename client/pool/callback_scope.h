// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

namespace isopool {

class AsyncCall;

namespace client {

class AsyncExecutor;

/// A thread of an executor, as its other threads see it. The executor owns it and guards the
/// members that are not atomic.
struct CallbackThread {
  enum class Work : uint8_t { kCalls, kDeadlines };
  CallbackThread(AsyncExecutor& owner, Work initially) : executor(owner), work(initially) {}

  /// That of the calling thread; null if it is no thread of an executor.
  static CallbackThread* current() noexcept;
  /// Call at the begin of the thread, and with null before the object is destroyed.
  static void setCurrent(CallbackThread* thread) noexcept;

  AsyncExecutor& executor;
  Work work;
  bool replaced = false;  ///< its callback waits, so another thread does its work
  /// When its outermost callback began, by ipc::monotonicNow(); 0: it runs none.
  std::atomic<int64_t> since{0};
};

/// While it lives, the calling thread runs the callback of this call, perhaps inside callbacks of
/// others. Destroyed in reverse order, by the same thread.
class CallbackScope {
 public:
  explicit CallbackScope(const AsyncCall& call) noexcept;
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

  /// True if the calling thread runs the callback of `call`; null: of any call.
  static bool runs(const AsyncCall* call) noexcept;

 private:
  friend class CallbackWait;

  const AsyncCall& call_;
  CallbackScope* const outer_;
  bool outermost_ = false;  // of a CallbackThread
};

/// While it lives, the calling thread waits inside its callbacks: for a call's outcome, which comes
/// after that call's callback, or for the callbacks of an executor that is being closed. All of
/// them together show which of them can never end. Any thread; costs a lock of the whole process.
class CallbackWait {
 public:
  explicit CallbackWait(const AsyncCall& target) noexcept : CallbackWait(&target, nullptr) {}
  explicit CallbackWait(const AsyncExecutor& closed) noexcept : CallbackWait(nullptr, &closed) {}
  ~CallbackWait();
  CallbackWait(const CallbackWait&) = delete;
  CallbackWait& operator=(const CallbackWait&) = delete;

  /// False if it waits, perhaps through the waits of other callbacks, for a callback that this very
  /// thread runs. A later wait may change that.
  bool canEnd() const;

 private:
  CallbackWait(const AsyncCall* target, const AsyncExecutor* closed) noexcept;
  bool runs(const AsyncCall& call) const noexcept;
  bool delays(const CallbackWait& other) const noexcept;
  bool leadsTo(const CallbackWait& wait, uint64_t search) const noexcept;

  const AsyncCall* const target_;
  const AsyncExecutor* const closed_;
  const CallbackScope* const innermost_;
  const CallbackThread* const thread_;
  mutable uint64_t search_ = 0;  // the last one that came here
  CallbackWait* previous_ = nullptr;
  CallbackWait* next_ = nullptr;
};

}  // namespace client
}  // namespace isopool
