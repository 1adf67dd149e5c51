// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace isopool {

class AsyncCall;
class CompletionState;

/// What became of an asynchronous call: a value, or the error that the same call made synchronously
/// would have thrown, or Cancelled.
class Outcome {
 public:
  explicit Outcome(at::IValue value) : value_(std::move(value)) {}
  explicit Outcome(std::exception_ptr error) : error_(std::move(error)) {}

  bool ok() const { return error_ == nullptr; }
  /// The value; throws the error if there is one.
  const at::IValue& value() const {
    if (error_) std::rethrow_exception(error_);
    return value_;
  }
  /// Null if ok().
  const std::exception_ptr& error() const { return error_; }

 private:
  at::IValue value_;
  std::exception_ptr error_;
};

/// A call made by ReplicatedObj::callAsync. Its end neither waits nor cancels. Any thread; copies
/// are the same call. Every member but valid() throws Error on a default-constructed one, and in a
/// child that the program forked.
///
/// A call has exactly one outcome, also when its worker, the supervisor or the manager ends first.
class PendingCall {
 public:
  PendingCall() = default;
  explicit PendingCall(std::shared_ptr<AsyncCall> call) : call_(std::move(call)) {}

  bool valid() const { return call_ != nullptr; }
  /// Waits for the outcome; the value, or the error is thrown. Any number of times. If the call has
  /// a callback it has returned by then, so it must not wait for its own call.
  at::IValue get() const;
  void wait() const;
  /// False if there is no outcome within that time.
  template <typename Rep, typename Period>
  bool wait_for(std::chrono::duration<Rep, Period> time) const {
    using std::chrono::nanoseconds;
    using Seconds = std::chrono::duration<double>;
    // Longer than nanoseconds can say is for ever.
    if (Seconds(time) >= Seconds(nanoseconds::max())) return waitFor(nanoseconds::max());
    if (time <= time.zero()) return ready();
    return waitFor(std::chrono::duration_cast<nanoseconds>(time));
  }
  bool ready() const { return waitFor(std::chrono::nanoseconds(0)); }

  /// Takes the call back: true if its Python code has not run an instruction and never will; its
  /// outcome is then Cancelled, now. A callback of it runs within cancel(). False, and nothing is
  /// done, if it had started or has an outcome: a running call is ended by its deadline only.
  bool cancel() const;

 private:
  bool waitFor(std::chrono::nanoseconds time) const;
  std::shared_ptr<AsyncCall> call_;
};

/// A call that has ended, as a CompletionQueue gives it out.
struct Completed {
  uint64_t tag = 0;  ///< as it was given to callAsync
  Outcome outcome;
};

/// Where calls' outcomes gather for an event loop: give fd() to poll, epoll or Asio, and take()
/// what there is when it is readable. Any thread. May end before its calls do: their outcomes are
/// dropped.
///
/// In a child that the program forked every member throws Error, and outcomes of the calls of the
/// child's own managers are dropped: it makes a CompletionQueue of its own.
class CompletionQueue {
 public:
  /// Throws Error if the process has no descriptor left.
  CompletionQueue();
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  /// Readable as long as take() would return something. It is the queue's: do not read or close it
  /// (an event loop that closes what it watches gets a dup()).
  int fd() const;
  /// All outcomes that have come, in the order in which they came; never waits.
  std::vector<Completed> take();

 private:
  friend class ReplicatedObj;
  std::shared_ptr<CompletionState> state_;
};

}  // namespace isopool
