// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "isopool/export.h"

namespace isopool {

class AsyncCall;
class CompletionState;

/// The result of an asynchronous call: either a value, or an error. The error is the exception that
/// the synchronous call would have thrown, or Cancelled.
///
/// A plain value: copyable, not synchronised. Tensors in it follow the rules for results: detached,
/// on the CPU, and valid after the manager's end.
class Outcome {
 public:
  /// For the library and for tests.
  explicit Outcome(at::IValue value) : value_(std::move(value)) {}
  explicit Outcome(std::exception_ptr error) : error_(std::move(error)) {}

  /// True if the call returned a value.
  bool ok() const { return error_ == nullptr; }
  /// The value. Rethrows the error if the call has failed.
  const at::IValue& value() const {
    if (error_) std::rethrow_exception(error_);
    return value_;
  }
  /// The error. Null if ok().
  const std::exception_ptr& error() const { return error_; }

 private:
  at::IValue value_;
  std::exception_ptr error_;
};

/// A call that ReplicatedObj::callAsync has accepted. Copies refer to the same call. The destructor
/// neither waits for the call nor cancels it.
///
/// A call gets exactly one outcome. If its worker, the supervisor or the manager ends first, the
/// outcome is the error that names this: WorkerLost, SupervisorLost, or Error.
///
/// Thread-safe: any thread may use any copy. Every member except valid() throws Error if the
/// PendingCall is default-constructed, and in a child process that the program has forked.
class ISOPOOL_EXPORT PendingCall {
 public:
  /// Refers to no call: valid() is false.
  PendingCall() = default;
  /// For the library.
  explicit PendingCall(std::shared_ptr<AsyncCall> call) : call_(std::move(call)) {}

  /// True if this object refers to a call.
  bool valid() const { return call_ != nullptr; }
  /// Waits for the outcome without a time limit. Returns the value, or throws the error. May be
  /// called more than once. If the call has a callback, get() returns after the callback: a wait in
  /// a callback that could never end throws Error, see docs/async.md. So do wait() and wait_for().
  at::IValue get() const;
  /// As get(), but ignores the outcome.
  void wait() const;
  /// Waits until the outcome exists or `time` has passed. Returns true if the outcome exists. A
  /// duration of zero or less does not wait.
  template <typename Rep, typename Period>
  bool wait_for(std::chrono::duration<Rep, Period> time) const {
    using std::chrono::nanoseconds;
    using Seconds = std::chrono::duration<double>;
    // A time that nanoseconds can't represent means: no limit.
    if (Seconds(time) >= Seconds(nanoseconds::max())) return waitFor(nanoseconds::max());
    if (time <= time.zero()) return ready();
    return waitFor(std::chrono::duration_cast<nanoseconds>(time));
  }
  /// True if the outcome exists. Does not wait.
  bool ready() const { return waitFor(std::chrono::nanoseconds(0)); }

  /// True while the call waits for its turn: no thread of the library has begun to make it.
  bool queued() const;
  /// Makes the call on the calling thread if it is the next one in the order of submission and no
  /// thread of the library has begun to make it: that saves two wake-ups of threads when the caller
  /// would only wait. Its callback runs here. Returns true if it was made here: then it has its
  /// outcome. `interrupted`: see CallOptions.
  bool runInline(const std::function<bool()>& interrupted = {}) const;
  /// Cancels the call if it has not started. Returns true if no instruction of its Python code has
  /// run or will run: its outcome is then Cancelled, from this moment on. The call's callback may
  /// run inside cancel(). Returns false, without an effect, if the call has started or has an
  /// outcome: its deadline or stop() ends a running call.
  bool cancel() const;
  /// Cancels the call also if it runs: then its worker is killed, as after a deadline, and sessions
  /// and Objs of this worker are lost. The outcome is Cancelled, or the one that came first; it
  /// comes in a moment. Returns false, without an effect, if the call has an outcome.
  bool stop() const;

 private:
  bool waitFor(std::chrono::nanoseconds time) const;
  std::shared_ptr<AsyncCall> call_;
};

/// A call that has ended, as CompletionQueue::take() returns it.
struct Completed {
  uint64_t tag = 0;  ///< the tag that callAsync was called with
  Outcome outcome;   ///< its value or its error
};

/// Collects the outcomes of asynchronous calls for an event loop. Watch fd() with poll, epoll or
/// Asio, and call take() when fd() is readable. One queue may serve any number of objects and
/// managers.
///
/// Thread-safe. May be destroyed before its calls have ended: their outcomes are then dropped.
///
/// In a child process that the program has forked every member throws Error, and the queue drops
/// outcomes of calls that the child makes. Make a new CompletionQueue in the child.
class ISOPOOL_EXPORT CompletionQueue {
 public:
  /// Creates one file descriptor. Throws Error if the process has no descriptor left.
  CompletionQueue();
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  /// A descriptor that is readable while take() would return at least one outcome. The queue owns
  /// it: do not read it and do not close it. If the event loop closes the descriptors that it
  /// watches, give it a dup() of this one.
  int fd() const;
  /// Removes and returns all outcomes that have arrived, in the order of their arrival. Does not
  /// wait; the result is empty if no outcome has arrived.
  std::vector<Completed> take();

 private:
  friend class ReplicatedObj;
  std::shared_ptr<CompletionState> state_;
};

}  // namespace isopool
