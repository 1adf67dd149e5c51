// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "client/async_call.h"

namespace isopool::client {

/// The asynchronous calls of one pool that wait for their turn, and the threads that make them: as
/// many as calls can be in the workers' rings, started when there is work for them, each making an
/// ordinary synchronous call at a time. One more thread watches the deadlines of calls that wait.
///
/// Threads and calls keep it, so that whatever a callback lets go of, nothing ends under it.
class AsyncExecutor : public std::enable_shared_from_this<AsyncExecutor> {
 public:
  explicit AsyncExecutor(size_t mostThreads);
  ~AsyncExecutor();

  /// Throws Error after close(), or if not even one thread can be had.
  void submit(std::shared_ptr<AsyncCall> call);
  /// Calls that wait for their turn here.
  size_t queued() const { return queued_.load(std::memory_order_relaxed); }
  void leftQueue() { queued_.fetch_sub(1, std::memory_order_relaxed); }

  /// From here on submit() throws SupervisorLost with this text. False if calls that were submitted
  /// before are under way: `drained` is called when they are settled.
  bool drain(const std::string& refusal, std::function<void()> drained);
  /// The pool is closed: settles what waits here, and waits for the threads, which find their calls
  /// ended, unless one of them is the caller.
  void close();

 private:
  void addThread();
  std::shared_ptr<AsyncCall> takeLeft();
  void makeRoomForThread();
  void addTimer();
  void serve();
  void watchDeadlines();
  bool isIdle() const { return queue_.empty() && idle_ == workers_; }  // needs mutex_
  void endDrain(std::unique_lock<std::mutex>& lock);
  void forgetDeadline(AsyncCall& call);

  const uint32_t generation_;
  const size_t mostThreads_;
  std::atomic<size_t> queued_{0};

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable deadlineCame_;
  std::deque<std::shared_ptr<AsyncCall>> queue_;
  std::set<std::pair<Clock::time_point, std::shared_ptr<AsyncCall>>> deadlines_;  // of queue_'s
  size_t idle_ = 0;  // threads that sleep on work_, or have just been woken
  size_t workers_ = 0;
  bool watching_ = false;
  bool closed_ = false;
  std::string refusal_;
  std::function<void()> drained_;
  std::vector<std::thread> threads_;
};

}  // namespace isopool::client
