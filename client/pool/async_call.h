// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/pool/pool_call.h"
#include "isopool/async.h"

namespace isopool {

namespace client {
class AsyncExecutor;
}

/// The implementation of a PendingCall: the request and, later, its outcome. The first of these
/// events settles the call, later ones have no effect: a thread of the executor has made the call,
/// cancel() succeeds, the deadline passes while the call is queued, the manager ends while the call
/// is queued. Any thread.
///
/// The thread that settles the call runs the callback, without a lock, before it wakes the threads
/// that wait for the outcome. So the callback may make calls and wait for them, see outcome(). Its
/// exceptions are logged and ignored. It may end its thread: the call has its outcome then, too.
class AsyncCall {
 public:
  using Callback = std::function<void(const Outcome&)>;

  /// Takes the calling thread's modes; the deadline counts from now on. `method`: see
  /// PoolCall::callMethod(). Throws LimitExceeded.
  AsyncCall(std::shared_ptr<ReplicatedObjImpl> object, std::string method,
            std::vector<at::IValue> args, client::NamedArguments kwargs, const CallOptions& options,
            Callback callback, std::shared_ptr<client::AsyncExecutor> executor);
  AsyncCall(const AsyncCall&) = delete;
  AsyncCall& operator=(const AsyncCall&) = delete;

  /// Makes the call and settles it, unless it was settled while it was queued. For the threads of
  /// the executor. `turn`: see Pool::reserveWorker(); ended when this returns.
  void run(client::EntryTurn turn);
  /// The same on another thread, see PendingCall::runInline(). Throws Error in a forked child.
  bool runInline(const std::function<bool()>& interrupted);
  /// The executor counts the call as running no longer; no effect the second time. Only the thread
  /// that took it from the queue.
  void leaveExecutor();
  /// Settles the call with `error` if no thread has begun to make it.
  void settleIfQueued(std::exception_ptr error);
  /// True until a thread begins to make it, or it is settled. Throws Error in a forked child.
  bool queued() const;
  /// True if user code of the call has not run and never will: the outcome is Cancelled, and the
  /// callback has run unless another thread runs it now. False if the call has started or was
  /// settled before. Throws Error in a forked child.
  bool cancel();
  /// Cancels the call, or ends it while it runs, see PendingCall::stop().
  bool stop();
  /// True if a thread has asked to make it by runInline() soon after its submission.
  bool callerWaits() const { return callerWaits_.load(std::memory_order_relaxed); }
  bool hasCallback() const { return hasCallback_; }
  const client::Deadline& deadline() const { return call_.deadline; }
  /// Call before it is queued if it is submitted during the drain of this number: it then waits, as
  /// a call that is made now, until the pool is attached again.
  void submittedDuring(uint64_t drain) {
    drain_ = drain;
    call_.accepted = false;
  }

  /// Waits for the outcome; null if there is none at `until`. The outcome is constant and lives as
  /// long as this object. A worker's death is an outcome. Throws Error in a forked child, inside
  /// the call's own callback, inside callbacks that would wait for each other for ever, and what
  /// AsyncExecutor::threadWaits() throws.
  const Outcome* outcome(const client::Deadline& until);

 private:
  enum class Phase { kQueued, kRunning, kSettling };

  bool leaveQueue(Phase next);
  void make(client::EntryTurn& turn);
  void end(client::EntryTurn& turn, Outcome outcome);
  void dropRequest();
  void settle(Outcome outcome);
  void awaitOutcome(const client::Deadline& until, base::MutexLock& lock) ISOPOOL_REQUIRES(mutex_);

  const uint32_t generation_;
  const client::Clock::time_point made_ = client::Clock::now();
  std::atomic<Phase> phase_{Phase::kQueued};
  std::atomic<bool> callerWaits_{false};
  client::CancellationToken cancellation_;

  const std::shared_ptr<client::AsyncExecutor> executor_;
  const std::shared_ptr<client::CallLimit> limit_;
  const client::EventLog log_;

  // For the thread that moved phase_ away from kQueued; dropRequest() releases them, and then only
  // the deadline of call_ may be used.
  std::shared_ptr<ReplicatedObjImpl> object_;
  const std::string method_;
  std::vector<at::IValue> args_;
  client::NamedArguments kwargs_;
  client::PoolCall call_;  // of these four; constant once the call is queued
  uint64_t drain_ = 0;     // during which it was submitted; 0: none
  bool left_ = false;      // leaveExecutor() was called
  // For the thread that moved phase_ to kSettling.
  Callback callback_;
  const bool hasCallback_;
  std::optional<client::CallLimit::Place> place_;

  base::Mutex mutex_;
  base::Condition settled_;
  std::optional<Outcome> outcome_ ISOPOOL_GUARDED_BY(mutex_);
};

}  // namespace isopool
