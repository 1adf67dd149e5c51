// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "client/pool/async_call.h"
#include "client/pool/callback_scope.h"

namespace isopool::client {

/// The queue of one pool's asynchronous calls and the threads that make them. There are at most
/// `mostThreads` of these, as many as calls that the pool gives to its workers (kCallsPerWorker). A
/// thread is started when there is work for it, and makes one ordinary synchronous call at a time.
/// One more thread watches the deadlines of queued calls. Any thread; only close() waits.
///
/// A callback may wait for other calls. Another thread then does the work of its thread: at once if
/// it waits by PendingCall, and 50 ms after its begin if the queue does not become empty meanwhile,
/// because it may wait by other means. So there are up to kMostReplaced more threads.
///
/// A program that waits for each call right after its submission makes it by itself, see
/// PendingCall::runInline(). While callers do so, the submission of a call wakes no thread, which
/// would cost more than a short call and take the processor from a worker: one more thread looks a
/// moment later, a millisecond at most, whether the call is still there.
///
/// The queue is first in, first out, and has no limit of its own, see CallLimit. Calls enter the
/// pool's line in the order of the queue, so that long calls start in that order. Short calls, of
/// which a worker gets a second one in advance, may overtake each other on the way to it. The
/// threads block all signals.
///
/// Its threads and its calls share ownership of it, so that it outlives a callback that releases
/// the manager and everything else.
class AsyncExecutor : public std::enable_shared_from_this<AsyncExecutor> {
 public:
  /// A caller that asks to make its call so soon after its submission only waits for it. Covers a
  /// thread that takes the processor from the caller in between and makes the call.
  static constexpr std::chrono::microseconds kSoon{200};

  /// So many callbacks may wait at the same time.
  static constexpr size_t kMostReplaced = 256;

  /// Starts no thread yet.
  explicit AsyncExecutor(size_t mostThreads);
  /// Does not wait: close() has joined the threads.
  ~AsyncExecutor();

  /// Queues the call. Throws Error after close(), or if there is no thread that could make the call
  /// or watch its deadline, and SupervisorLost after a drain that refuses new calls; then the call
  /// gets no outcome.
  void submit(std::shared_ptr<AsyncCall> call);
  /// The number of calls that no thread has begun to make, and that were not settled.
  size_t queued() const { return queued_.load(std::memory_order_relaxed); }
  /// Called by a call that is no longer queued.
  void leftQueue() { queued_.fetch_sub(1, std::memory_order_relaxed); }

  /// Called by a call whose caller asked soon to make it by itself.
  void callerWaits() { callersWait_.store(true, std::memory_order_relaxed); }
  /// Takes the call from the queue for its caller, which is to make it if it was not settled, and
  /// then to call ended(). Returns no lock, and leaves the call to a thread, if the call is not the
  /// next one of the queue or another thread has the turn.
  EntryTurn takeIfNext(const AsyncCall& call);
  /// A call has been settled that was submitted during the drain of this number; 0: during none.
  void ended(uint64_t drain);
  /// From here on submit() throws SupervisorLost with the text `refusal`; if that is empty, it
  /// queues calls that are not accepted, see PoolCall. Returns false if calls that were submitted
  /// before are queued or running: when they are settled, a thread of the executor calls `drained`,
  /// without a lock. `drained` must not keep the pool alive.
  bool drain(const std::string& refusal, std::function<void()> drained);
  /// Ends the effects of drain().
  void resume();
  /// Call before the calling thread waits for a call's outcome: if it is a thread of an executor,
  /// another one does its work until its callback returns. Throws Error if too many of its threads
  /// wait already, or if no thread can be started.
  static void threadWaits();
  /// Call when the pool is closed. Settles the queued calls with Error and waits for the threads,
  /// whose calls fail with the pool, and for the callbacks that they run; does not wait for the
  /// calling thread if it is one of them. A second call has no effect.
  void close();

 private:
  using Threads = std::list<CallbackThread>;

  void addThread(CallbackThread::Work work, const char* name) ISOPOOL_REQUIRES(mutex_);
  bool addCallThread() ISOPOOL_REQUIRES(mutex_);
  void addCallThreadIfCrowded() ISOPOOL_REQUIRES(mutex_);
  void runThread(Threads::iterator self);
  void threadEnds(Threads::iterator self) noexcept;
  void replaceLocked(CallbackThread& thread) ISOPOOL_REQUIRES(mutex_);
  void watchCallbacks();
  void watchLocked() ISOPOOL_REQUIRES(mutex_);
  bool replaceSlowLocked() ISOPOOL_REQUIRES(mutex_);
  std::shared_ptr<AsyncCall> takeLeft();
  void joinThreads();
  void makeRoomForThread() ISOPOOL_REQUIRES(mutex_);
  void serve(CallbackThread& self);
  bool lookLater() noexcept ISOPOOL_REQUIRES(mutex_);
  void lookForLeftCalls();
  void watchDeadlines(const CallbackThread& self);
  std::function<void()> endAccepted(uint64_t drain) ISOPOOL_REQUIRES(mutex_);
  void forgetDeadline(const AsyncCall& call) ISOPOOL_REQUIRES(mutex_);

  const uint32_t generation_;
  const size_t mostThreads_;
  std::atomic<size_t> queued_{0};
  std::atomic<bool> callersWait_{false};

  base::Mutex order_;  // of an EntryTurn; locked before mutex_
  base::Mutex mutex_;
  base::Condition work_;
  base::Condition deadlineCame_;
  std::deque<std::shared_ptr<AsyncCall>> queue_ ISOPOOL_GUARDED_BY(mutex_);
  std::set<std::pair<Clock::time_point, std::shared_ptr<AsyncCall>>> deadlines_
      ISOPOOL_GUARDED_BY(mutex_);  // of queue_
  size_t idle_ ISOPOOL_GUARDED_BY(mutex_) =
      0;  // threads that sleep on work_ or have just been woken
  Threads callbackThreads_ ISOPOOL_GUARDED_BY(mutex_);
  size_t workers_ ISOPOOL_GUARDED_BY(mutex_) = 0;   // threads that make calls
  size_t replaced_ ISOPOOL_GUARDED_BY(mutex_) = 0;  // of these
  bool hasTimer_ ISOPOOL_GUARDED_BY(mutex_) = false;
  base::Condition callbacksWatched_;
  bool hasCallbacks_ ISOPOOL_GUARDED_BY(mutex_) = false;  // a call had one
  bool hasWatcher_ ISOPOOL_GUARDED_BY(mutex_) = false;    // the thread of watchCallbacks()
  bool watching_ ISOPOOL_GUARDED_BY(mutex_) = false;      // at intervals, and not only if woken
  base::Condition looksAgain_;
  bool hasLooker_ ISOPOOL_GUARDED_BY(mutex_) = false;  // the thread of lookForLeftCalls()
  bool looking_ ISOPOOL_GUARDED_BY(mutex_) = false;    // at intervals, and not only after a wake-up
  uint64_t submitted_ ISOPOOL_GUARDED_BY(mutex_) = 0;  // the number of calls so far
  bool closed_ ISOPOOL_GUARDED_BY(mutex_) = false;
  std::string refusal_ ISOPOOL_GUARDED_BY(mutex_);
  /// The number of the drain that is under way; 0: none.
  uint64_t drain_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  uint64_t lastDrain_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  size_t running_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  /// Queued and running calls that were submitted before the drain.
  size_t acceptedLeft_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  std::function<void()> drained_ ISOPOOL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ISOPOOL_GUARDED_BY(mutex_);
};

}  // namespace isopool::client
