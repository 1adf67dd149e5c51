// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/async_executor.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <new>
#include <system_error>

#include "base/blocked_signals.h"
#include "client/program/process_fork.h"
#include "ipc/channel/futex.h"

namespace isopool::client {

namespace {

constexpr const char* kManagerGone = "the InterpreterManager that this belongs to is gone";
constexpr const char* kNoThread = "can't start a thread for asynchronous calls: ";

// A callback that runs for so long may wait for another call.
constexpr std::chrono::milliseconds kLongCallback(50);
constexpr std::chrono::milliseconds kBetweenLooks(10);

// The exception that `make` returns, or std::bad_alloc if there is no memory for it.
template <typename Make>
std::exception_ptr errorOf(Make&& make) {
  try {
    return std::make_exception_ptr(make());
  } catch (const std::bad_alloc&) {
    return std::current_exception();
  }
}

Error managerGone() { return Error(kManagerGone); }

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
  if (call->deadline() && !hasTimer_) addThread(CallbackThread::Work::kDeadlines, "isopool-timer");
  hasCallbacks_ = hasCallbacks_ || call->hasCallback();
  // Each of these threads takes one call: this one may have to wait for a callback.
  if (queue_.size() >= idle_ && !addCallThread() && hasCallbacks_) watchLocked();
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

void AsyncExecutor::addThread(CallbackThread::Work work, const char* name) {
  makeRoomForThread();
  const auto place = callbackThreads_.emplace(callbackThreads_.end(), *this, work);
  try {
    threads_.push_back(
        startThread(name, [self = shared_from_this(), place] { self->runThread(place); }));
  } catch (const std::system_error& error) {
    callbackThreads_.erase(place);
    throw Error(std::string(kNoThread) + error.what());
  } catch (...) {
    callbackThreads_.erase(place);
    throw;
  }
  if (work == CallbackThread::Work::kCalls) {
    ++workers_;
  } else {
    hasTimer_ = true;
  }
}

// False if there are enough threads, or none can be started.
bool AsyncExecutor::addCallThread() {
  if (workers_ - replaced_ >= mostThreads_) return false;
  try {
    addThread(CallbackThread::Work::kCalls, "isopool-call");
    return true;
  } catch (const Error&) {
    // One thread is enough to make all calls, only later.
    if (workers_ == replaced_) throw;
    return false;
  }
}

void AsyncExecutor::addCallThreadIfCrowded() {
  if (queue_.size() > idle_) addCallThread();
}

void AsyncExecutor::runThread(Threads::iterator self) {
  // Also if a callback ends the thread.
  struct End {
    AsyncExecutor& executor;
    Threads::iterator self;
    ~End() { executor.threadEnds(self); }
  } const end{*this, self};
  CallbackThread::setCurrent(&*self);
  base::MutexLock lock(mutex_);
  const auto work = self->work;
  lock.unlock();
  if (work == CallbackThread::Work::kDeadlines) watchDeadlines(*self);
  serve(*self);
}

void AsyncExecutor::threadEnds(Threads::iterator self) noexcept {
  CallbackThread::setCurrent(nullptr);
  base::MutexLock lock(mutex_);
  if (self->work == CallbackThread::Work::kDeadlines) {
    hasTimer_ = false;
  } else {
    --workers_;
    if (self->replaced) --replaced_;
  }
  callbackThreads_.erase(self);
  try {
    if (!hasTimer_ && !deadlines_.empty()) {
      addThread(CallbackThread::Work::kDeadlines, "isopool-timer");
    }
    addCallThreadIfCrowded();
  } catch (const std::exception&) {
    // The next submit() tries again.
  }
}

void AsyncExecutor::serve(CallbackThread& self) {
  for (;;) {
    EntryTurn turn(order_);
    base::MutexLock lock(mutex_);
    if (std::exchange(self.replaced, false)) --replaced_;
    if (queue_.empty()) {
      if (closed_) return;
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
    const bool closed = closed_;
    lock.unlock();
    // Released without the lock: this may be the last owner of anything, the pool included.
    const std::shared_ptr<AsyncCall> owned = std::move(call);
    // Also if the callback ends the thread.
    struct End {
      AsyncCall& call;
      ~End() { call.leaveExecutor(); }
    } const end{*owned};
    if (closed) {
      turn.unlock();
      owned->settleIfQueued(errorOf(managerGone));
      continue;
    }
    owned->run(std::move(turn));
    if (!owned->callerWaits()) callersWait_.store(false, std::memory_order_relaxed);
  }
}

// ---- Callbacks that wait ---------------------------------------------------------------------

void AsyncExecutor::threadWaits() {
  CallbackThread* const thread = CallbackThread::current();
  if (thread == nullptr) return;
  AsyncExecutor& executor = thread->executor;
  base::MutexLock lock(executor.mutex_);
  if (thread->replaced) return;
  if (executor.replaced_ >= kMostReplaced) {
    throw Error("a callback can't wait for another call: " + std::to_string(kMostReplaced) +
                " callbacks of this manager wait already");
  }
  executor.replaceLocked(*thread);
}

// The thread comes back to serve() when its callback has returned.
void AsyncExecutor::replaceLocked(CallbackThread& thread) {
  thread.replaced = true;
  ++replaced_;
  const bool wasTimer = thread.work == CallbackThread::Work::kDeadlines;
  if (wasTimer) {
    thread.work = CallbackThread::Work::kCalls;
    ++workers_;
    hasTimer_ = false;
    if (!deadlines_.empty()) addThread(CallbackThread::Work::kDeadlines, "isopool-timer");
  }
  addCallThreadIfCrowded();
}

// Begins to look whether callbacks run for long.
void AsyncExecutor::watchLocked() {
  if (watching_) return;
  if (!hasWatcher_) {
    makeRoomForThread();
    try {
      threads_.push_back(
          startThread("isopool-watch", [self = shared_from_this()] { self->watchCallbacks(); }));
    } catch (const std::system_error& error) {
      throw Error(std::string(kNoThread) + error.what());
    }
    hasWatcher_ = true;
  }
  watching_ = true;
  callbacksWatched_.notify_one();
}

void AsyncExecutor::watchCallbacks() {
  base::MutexLock lock(mutex_);
  while (!closed_ || !queue_.empty()) {
    if (!watching_) {
      callbacksWatched_.wait(lock);
      continue;
    }
    callbacksWatched_.wait_for(lock, kBetweenLooks);
    watching_ = replaceSlowLocked();
  }
}

// Has other threads do the work of those whose callbacks have run for long. True as long as a
// callback may delay other calls.
bool AsyncExecutor::replaceSlowLocked() {
  const int64_t longAgo = ipc::monotonicNow() - std::chrono::nanoseconds(kLongCallback).count();
  bool delaysDeadlines = false;
  for (CallbackThread& each : callbackThreads_) {
    const int64_t since = each.since.load(std::memory_order_relaxed);
    if (since == 0 || each.replaced) continue;
    if (since > longAgo || replaced_ >= kMostReplaced) {
      delaysDeadlines |= each.work == CallbackThread::Work::kDeadlines;
      continue;
    }
    try {
      replaceLocked(each);
    } catch (const std::exception&) {
      // No thread or no memory: the next look tries again.
    }
  }
  try {
    addCallThreadIfCrowded();
  } catch (const std::exception&) {
  }
  return !queue_.empty() || delaysDeadlines;
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

// Returns when another thread does that, or the executor is closed.
void AsyncExecutor::watchDeadlines(const CallbackThread& self) {
  base::MutexLock lock(mutex_);
  while (!closed_ && self.work == CallbackThread::Work::kDeadlines) {
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
    try {
      if (call->hasCallback()) watchLocked();
    } catch (const std::exception&) {
      // No thread: deadlines that pass during the callback have effect after it.
    }
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
  std::optional<CallbackWait> wait;
  if (CallbackScope::runs(nullptr)) wait.emplace(*this);
  decltype(deadlines_) deadlines;
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
    deadlines.swap(deadlines_);
    try {
      if (hasCallbacks_ && !queue_.empty()) watchLocked();
    } catch (const std::exception&) {
      // No thread: the present ones and this one settle the calls.
    }
  }
  try {
    threadWaits();
  } catch (const std::exception&) {
    // As above.
  }
  work_.notify_all();
  deadlineCame_.notify_all();
  looksAgain_.notify_all();
  callbacksWatched_.notify_all();
  deadlines.clear();
  while (const std::shared_ptr<AsyncCall> call = takeLeft()) {
    call->settleIfQueued(errorOf(managerGone));
  }
  // The last call was taken: watchCallbacks() ends.
  callbacksWatched_.notify_all();
  joinThreads();
}

// A thread may add another one as long as it runs.
void AsyncExecutor::joinThreads() {
  for (;;) {
    std::vector<std::thread> threads;
    {
      base::MutexLock lock(mutex_);
      threads.swap(threads_);
    }
    if (threads.empty()) return;
    for (std::thread& thread : threads) {
      if (thread.get_id() == std::this_thread::get_id()) {
        thread.detach();
      } else {
        thread.join();
      }
    }
  }
}

}  // namespace isopool::client
