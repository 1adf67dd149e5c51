// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/async_executor.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <new>
#include <system_error>

#include "base/blocked_signals.h"
#include "client/program/process_fork.h"

namespace isopool::client {

namespace {

constexpr const char* kManagerGone = "the InterpreterManager that this belongs to is gone";
constexpr const char* kNoThread = "can't start a thread for asynchronous calls: ";

// The exception that `make` returns, or std::bad_alloc if there is no memory for it.
template <typename Make>
std::exception_ptr errorOf(Make&& make) {
  try {
    return std::make_exception_ptr(make());
  } catch (const std::bad_alloc&) {
    return std::current_exception();
  }
}

DeadlineExceeded overdueInLine() {
  return {"the deadline passed while the call waited for a free worker", /*started=*/false};
}

template <typename Body>
std::thread startThread(const char* name, Body body) {
  const base::BlockedSignals blocked;
  std::thread thread(std::move(body));
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace

AsyncExecutor::AsyncExecutor(size_t mostThreads)
    : generation_(forkGeneration()), mostThreads_(mostThreads) {}

AsyncExecutor::~AsyncExecutor() {
  // close() has joined the threads: some are left only if the pool was never closed.
  for (std::thread& thread : threads_) thread.detach();
}

void AsyncExecutor::submit(std::shared_ptr<AsyncCall> call) {
  base::MutexLock lock(mutex_);
  if (closed_) throw Error(kManagerGone);
  if (!refusal_.empty()) throw SupervisorLost(refusal_);
  if (drain_ != 0) call->submittedDuring(drain_);
  // Steps that can throw come first: a call whose submit() throws gets no outcome.
  if (call->deadline() && !watching_) addTimer();
  if (queue_.size() >= idle_ && workers_ < mostThreads_) addThread();
  queue_.push_back(call);
  if (call->deadline()) {
    try {
      const auto place = deadlines_.emplace(*call->deadline(), call).first;
      if (place == deadlines_.begin()) deadlineCame_.notify_one();
    } catch (...) {
      queue_.pop_back();
      throw;
    }
  }
  queued_.fetch_add(1, std::memory_order_relaxed);
  ++submitted_;
  if (idle_ == 0) return;
  const bool callersWait = callersWait_.load(std::memory_order_relaxed) && queue_.size() == 1;
  if (!callersWait || !lookLater()) work_.notify_one();
}

// False if no thread can be started.
bool AsyncExecutor::lookLater() noexcept {
  if (looking_) return true;
  if (!hasLooker_) {
    try {
      makeRoomForThread();
      threads_.push_back(
          startThread("isopool-look", [self = shared_from_this()] { self->lookForLeftCalls(); }));
      hasLooker_ = true;
    } catch (const std::exception&) {
      return false;
    }
  }
  looking_ = true;
  looksAgain_.notify_one();
  return true;
}

void AsyncExecutor::lookForLeftCalls() {
  constexpr std::chrono::microseconds kShortest(50);
  // As long as callers take their calls, each look only takes a processor from them.
  constexpr std::chrono::microseconds kLongest(1000);
  constexpr int kEnough = 20;  // looks without a new call, after which it sleeps
  int quiet = 0;
  auto interval = kShortest;
  base::MutexLock lock(mutex_);
  while (!closed_) {
    if (!looking_) {
      looksAgain_.wait(lock);
      quiet = 0;
      interval = kShortest;
      continue;
    }
    const uint64_t submitted = submitted_;
    const bool callWaits = !queue_.empty();
    looksAgain_.wait_for(lock, interval);
    if (submitted_ != submitted) {
      quiet = 0;
      interval = std::min(2 * interval, kLongest);
      continue;
    }
    // The latest call is the only one for which no thread was woken.
    if (callWaits && !queue_.empty()) {
      work_.notify_one();
      interval = kShortest;
    }
    looking_ = ++quiet < kEnough;
  }
}

EntryTurn AsyncExecutor::takeIfNext(const AsyncCall& call) {
  std::shared_ptr<AsyncCall> taken;  // released without the lock
  // Does not wait: the thread that has the turn may wait for an event that takes long.
  EntryTurn turn(order_, std::try_to_lock);
  base::MutexLock lock(mutex_);
  if (!turn || queue_.empty() || queue_.front().get() != &call) {
    if (idle_ > 0 && !queue_.empty()) work_.notify_one();
    return {};
  }
  taken = std::move(queue_.front());
  queue_.pop_front();
  forgetDeadline(call);
  ++running_;
  lock.unlock();
  return turn;
}

void AsyncExecutor::ended(uint64_t drain) {
  base::MutexLock lock(mutex_);
  --running_;
  const auto drained = endAccepted(drain);
  lock.unlock();
  if (drained) drained();
}

// Call before a thread starts: a running std::thread for which the vector finds no room would be
// destroyed, which ends the program.
void AsyncExecutor::makeRoomForThread() { threads_.reserve(threads_.size() + 1); }

void AsyncExecutor::addTimer() {
  makeRoomForThread();
  try {
    threads_.push_back(
        startThread("isopool-timer", [self = shared_from_this()] { self->watchDeadlines(); }));
    watching_ = true;
  } catch (const std::system_error& error) {
    throw Error(std::string(kNoThread) + error.what());
  }
}

void AsyncExecutor::addThread() {
  makeRoomForThread();
  try {
    threads_.push_back(startThread("isopool-call", [self = shared_from_this()] { self->serve(); }));
    ++workers_;
  } catch (const std::system_error& error) {
    // One thread is enough to make all calls, only later.
    if (workers_ == 0) throw Error(std::string(kNoThread) + error.what());
  }
}

void AsyncExecutor::serve() {
  for (;;) {
    EntryTurn turn(order_);
    base::MutexLock lock(mutex_);
    if (closed_) return;
    if (queue_.empty()) {
      turn.unlock();
      ++idle_;
      work_.wait(lock);
      --idle_;
      continue;
    }
    std::shared_ptr<AsyncCall> call = std::move(queue_.front());
    queue_.pop_front();
    forgetDeadline(*call);
    ++running_;
    lock.unlock();
    call->run(std::move(turn));
    if (!call->callerWaits()) callersWait_.store(false, std::memory_order_relaxed);
    const uint64_t drain = call->drain();
    // Released without the lock: this may be the last owner of anything, the pool included.
    call.reset();
    ended(drain);
  }
}

bool AsyncExecutor::drain(const std::string& refusal, std::function<void()> drained) {
  base::MutexLock lock(mutex_);
  refusal_ = refusal;
  drain_ = ++lastDrain_;
  acceptedLeft_ = queue_.size() + running_;
  if (acceptedLeft_ == 0) return true;
  drained_ = std::move(drained);
  return false;
}

void AsyncExecutor::resume() {
  std::function<void()> drained;
  base::MutexLock lock(mutex_);
  refusal_.clear();
  drain_ = 0;
  drained.swap(drained_);
}

// A call has been settled that was submitted during the drain of this number; 0: during none. If
// it is the last one for which the present drain waits, returns what is to be called, without the
// lock.
std::function<void()> AsyncExecutor::endAccepted(uint64_t drain) {
  if (drain_ == 0 || drain == drain_ || acceptedLeft_ == 0 || --acceptedLeft_ > 0) return nullptr;
  return std::exchange(drained_, nullptr);
}

void AsyncExecutor::forgetDeadline(const AsyncCall& call) {
  if (!call.deadline()) return;
  for (auto entry = deadlines_.lower_bound({*call.deadline(), nullptr});
       entry != deadlines_.end() && entry->first == *call.deadline(); ++entry) {
    if (entry->second.get() == &call) {
      deadlines_.erase(entry);
      return;
    }
  }
}

void AsyncExecutor::watchDeadlines() {
  base::MutexLock lock(mutex_);
  while (!closed_) {
    if (deadlines_.empty()) {
      deadlineCame_.wait(lock);
      continue;
    }
    const auto first = deadlines_.begin();
    if (first->first > Clock::now()) {
      const auto until = first->first;
      deadlineCame_.wait_until(lock, until);
      continue;
    }
    std::shared_ptr<AsyncCall> call = first->second;
    deadlines_.erase(first);
    lock.unlock();
    call->settleIfQueued(errorOf(overdueInLine));
    call.reset();
    lock.lock();
  }
}

std::shared_ptr<AsyncCall> AsyncExecutor::takeLeft() {
  base::MutexLock lock(mutex_);
  if (queue_.empty()) return nullptr;
  std::shared_ptr<AsyncCall> call = std::move(queue_.front());
  queue_.pop_front();
  return call;
}

// Needs no memory: destructors call it.
void AsyncExecutor::close() {
  std::vector<std::thread> threads;
  decltype(deadlines_) deadlines;
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
    threads.swap(threads_);
    deadlines.swap(deadlines_);
  }
  work_.notify_all();
  deadlineCame_.notify_all();
  looksAgain_.notify_all();
  deadlines.clear();
  while (const std::shared_ptr<AsyncCall> call = takeLeft()) {
    call->settleIfQueued(errorOf([] { return Error(kManagerGone); }));
  }
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

}  // namespace isopool::client
