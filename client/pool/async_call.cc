// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/async_call.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <cxxabi.h>

#include <cstdio>

#include "base/without_cancellation.h"
#include "client/pool/async_executor.h"
#include "client/pool/callback_scope.h"
#include "client/pool/worker_steps.h"
#include "client/program/caller_modes.h"
#include "client/program/event_log.h"
#include "client/program/process_fork.h"
#include "client/transport/request_draft.h"

namespace isopool {

namespace {

// Applies the caller's modes to the executor's thread: the results are created under them.
class ScopedModes {
 public:
  explicit ScopedModes(uint32_t modes) : grad_((modes & ipc::kGradEnabled) != 0) {
    if ((modes & ipc::kInferenceMode) != 0) inference_.emplace(true);
  }

 private:
  at::AutoGradMode grad_;
  std::optional<c10::InferenceMode> inference_;
};

// Between two looks of a waiting callback whether its wait can end.
constexpr std::chrono::milliseconds kBetweenLooks(100);

std::exception_ptr cancelled() { return std::make_exception_ptr(client::cancelledCall()); }

void reportThrowingCallback(const client::EventLog& log, const char* what) {
  const std::string text = std::string("a callback of an asynchronous call threw: ") + what;
  if (log.isSet()) {
    log.write(LogLevel::kError, [&] { return text; });
  } else {
    const base::WithoutCancellation complete;
    std::fprintf(stderr, "isopool: %s\n", text.c_str());
  }
}

}  // namespace

AsyncCall::AsyncCall(std::shared_ptr<ReplicatedObjImpl> object, std::string method,
                     std::vector<at::IValue> args, client::NamedArguments kwargs,
                     const CallOptions& options, Callback callback,
                     std::shared_ptr<client::AsyncExecutor> executor)
    : generation_(client::forkGeneration()),
      executor_(std::move(executor)),
      limit_(object->pool->callLimit()),
      log_(object->pool->eventLog()),
      object_(std::move(object)),
      method_(std::move(method)),
      args_(std::move(args)),
      kwargs_(std::move(kwargs)),
      call_(*object_, args_, &kwargs_, options),
      callback_(std::move(callback)),
      hasCallback_(callback_ != nullptr),
      place_(std::in_place, limit_.get()) {
  call_.callMethod(method_);
  call_.modes = client::callerModes();
  call_.cancellation = &cancellation_;
  call_.accepted = true;
}

bool AsyncCall::leaveQueue(Phase next) {
  Phase queued = Phase::kQueued;
  if (!phase_.compare_exchange_strong(queued, next)) return false;
  executor_->leftQueue();
  return true;
}

void AsyncCall::run(client::EntryTurn turn) {
  if (leaveQueue(Phase::kRunning)) make(turn);
}

bool AsyncCall::runInline(const std::function<bool()>& interrupted) {
  client::checkNotForked(generation_);
  if (client::Clock::now() < made_ + client::AsyncExecutor::kSoon) {
    callerWaits_.store(true, std::memory_order_relaxed);
    executor_->callerWaits();
  }
  client::EntryTurn turn = executor_->takeIfNext(*this);
  if (!turn) return false;
  const bool begun = leaveQueue(Phase::kRunning);
  if (begun) {
    if (interrupted) cancellation_.stopIf(interrupted);
    make(turn);
  }
  leaveExecutor();
  return begun;
}

void AsyncCall::leaveExecutor() {
  if (!std::exchange(left_, true)) executor_->ended(drain_);
}

void AsyncCall::make(client::EntryTurn& turn) {
  call_.turn = &turn;
  std::optional<Outcome> outcome;
  try {
    client::prepareThread();
    const ScopedModes modes(*call_.modes);
    const client::CallLimit::Scope counted(limit_.get());
    outcome.emplace(client::callOnPool(call_));
  } catch (const abi::__forced_unwind&) {
    // pthread_exit() in the program's observer or onRebuilt().
    end(turn, Outcome(std::make_exception_ptr(
                  Error("the call has no result: a function of the program ended its thread"))));
    throw;
  } catch (...) {
    outcome.emplace(std::current_exception());
  }
  end(turn, std::move(*outcome));
}

void AsyncCall::end(client::EntryTurn& turn, Outcome outcome) {
  // Not during the callback, which may wait for other calls.
  if (turn) turn.unlock();
  // cancel() has returned true, so the call has not run: its outcome is Cancelled in any case.
  if (cancellation_.end()) outcome = Outcome(cancelled());
  dropRequest();
  // Before the callback: a drain waits for calls that run, and a call that the callback makes may
  // wait for the end of that drain.
  leaveExecutor();
  Phase running = Phase::kRunning;
  if (phase_.compare_exchange_strong(running, Phase::kSettling)) settle(std::move(outcome));
}

void AsyncCall::settleIfQueued(std::exception_ptr error) {
  if (!leaveQueue(Phase::kSettling)) return;
  dropRequest();
  settle(Outcome(std::move(error)));
}

bool AsyncCall::queued() const {
  client::checkNotForked(generation_);
  return phase_.load(std::memory_order_relaxed) == Phase::kQueued;
}

bool AsyncCall::cancel() {
  client::checkNotForked(generation_);
  if (leaveQueue(Phase::kSettling)) {
    dropRequest();
    settle(Outcome(cancelled()));
    return true;
  }
  if (phase_.load() == Phase::kSettling || !cancellation_.cancel()) return false;
  Phase running = Phase::kRunning;
  // If the phase has changed, run() settles the call, also with Cancelled.
  if (phase_.compare_exchange_strong(running, Phase::kSettling)) settle(Outcome(cancelled()));
  return true;
}

bool AsyncCall::stop() {
  return cancel() || (phase_.load() != Phase::kSettling && cancellation_.stop());
}

void AsyncCall::dropRequest() {
  args_.clear();
  kwargs_.clear();
  object_.reset();
}

void AsyncCall::settle(Outcome outcome) {
  // Released before the callback runs: the callback may make the next call.
  place_.reset();
  // Also if the callback ends its thread.
  struct Settled {
    AsyncCall& call;
    Outcome& outcome;
    ~Settled() {
      // Destroyed before waiting threads wake up: they may next end what the callback refers to.
      call.callback_ = nullptr;
      {
        base::MutexLock lock(call.mutex_);
        call.outcome_.emplace(std::move(outcome));
      }
      call.settled_.notify_all();
    }
  } const settled{*this, outcome};
  if (!callback_) return;
  try {
    const client::CallbackScope scope(*this);
    callback_(outcome);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const std::exception& error) {
    reportThrowingCallback(log_, error.what());
  } catch (...) {
    reportThrowingCallback(log_, "an exception that is not a std::exception");
  }
}

const Outcome* AsyncCall::outcome(const client::Deadline& until) {
  client::checkNotForked(generation_);
  base::MutexLock lock(mutex_);
  if (!outcome_ && !client::isPast(until)) awaitOutcome(until, lock);
  return outcome_ ? &*outcome_ : nullptr;
}

// Waits with `lock` released. Clang does not follow a lock that is released meanwhile.
void AsyncCall::awaitOutcome(const client::Deadline& until,
                             base::MutexLock& lock) ISOPOOL_LOCKS_UNCHECKED {
  const base::WithoutCancellation complete;
  lock.unlock();
  if (client::CallbackScope::runs(this)) {
    throw Error("a callback can't wait for its own call, which ends when the callback returns");
  }
  client::AsyncExecutor::threadWaits();
  // A wait with a limit ends by itself.
  std::optional<client::CallbackWait> wait;
  if (!until && client::CallbackScope::runs(nullptr)) wait.emplace(*this);
  lock.lock();
  while (!outcome_ && !client::isPast(until)) {
    if (wait) {
      lock.unlock();
      if (!wait->canEnd()) {
        throw Error(
            "callbacks can't wait for each other: the call for which this one waits ends only "
            "after this callback");
      }
      lock.lock();
      if (!outcome_) settled_.wait_for(lock, kBetweenLooks);
    } else if (until) {
      settled_.wait_until(lock, *until);
    } else {
      settled_.wait(lock);
    }
  }
}

// ---- PendingCall -----------------------------------------------------------------------------

namespace {

AsyncCall& bodyOf(const std::shared_ptr<AsyncCall>& call) {
  if (!call) throw Error("a default-constructed PendingCall refers to no call");
  return *call;
}

}  // namespace

at::IValue PendingCall::get() const { return bodyOf(call_).outcome(std::nullopt)->value(); }

void PendingCall::wait() const { bodyOf(call_).outcome(std::nullopt); }

bool PendingCall::waitFor(std::chrono::nanoseconds time) const {
  return bodyOf(call_).outcome(client::deadlineAfter(time)) != nullptr;
}

bool PendingCall::queued() const { return bodyOf(call_).queued(); }

bool PendingCall::runInline(const std::function<bool()>& interrupted) const {
  return bodyOf(call_).runInline(interrupted);
}

bool PendingCall::cancel() const { return bodyOf(call_).cancel(); }

bool PendingCall::stop() const { return bodyOf(call_).stop(); }

}  // namespace isopool
