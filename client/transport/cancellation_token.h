// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/mutex.h"
#include "client/transport/deadline.h"

namespace isopool::client {

class WorkerLink;
enum class RequestOutcome : uint32_t;
struct PendingRequest;

/// Lets any thread take back a request that another thread makes, or end it. One token serves one
/// request, on all the workers on which the request is tried, and must outlive it. Any thread; no
/// member waits for the worker or for the requesting thread.
class CancellationToken {
 public:
  /// True if user code of the request has not run and never will; the requesting thread is woken
  /// and gets RequestOutcome::kWithdrawn (or kNeverStarted). False if the request has started or
  /// ended; then it continues unchanged. May be called before the request is published: it is not
  /// published then. Further calls return the same until end().
  bool cancel();
  /// Ends the request as if its deadline had passed now: it is withdrawn if it has not started,
  /// else abandoned, and its worker is killed. Takes effect when the requesting thread looks, at
  /// once or within its longest sleep. False, without an effect, if the request has ended.
  bool stop();
  /// True once stop() has returned true.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  /// True once cancel() or stop() has: the request is not to be published, nor to be tried again.
  bool givenUp() const { return requested() || stopped(); }
  /// Before the request is made: its thread calls `interrupted` now and then while it waits, and
  /// stops the request if that returns true. It must outlive the request.
  void stopIf(const std::function<bool()>& interrupted) {
    interrupted_ = &interrupted;
    lastLook_ = Clock::now();  // most requests end before the first look
  }
  /// For the requesting thread: true if the request is to be stopped. May call `interrupted`, which
  /// may do anything: call it without a lock and without the lead. Throws what that throws.
  bool stops();
  /// True if stops() may return true, or calls `interrupted`.
  bool looks() const;
  /// Call when the request has ended, whatever its outcome: from here on cancel() returns false.
  /// True if the request was taken back before: then its outcome must be "cancelled", also if it
  /// was to be tried again on another worker.
  bool end();
  /// True if the request was taken back.
  bool requested() const { return requested_.load(std::memory_order_acquire); }

 private:
  friend class WorkerLink;
  // Call when the request is published.
  void enter(WorkerLink& channel, PendingRequest& request, uint64_t sequence)
      ISOPOOL_REQUIRES(mutex_);
  // Call when the request has left the worker. Takes mutex_.
  void leave(RequestOutcome outcome);

  const std::function<bool()>* interrupted_ = nullptr;
  Clock::time_point lastLook_;  // when the requesting thread called it

  base::Mutex mutex_;
  std::atomic<bool> requested_{false};
  std::atomic<bool> stopped_{false};
  bool over_ ISOPOOL_GUARDED_BY(mutex_) = false;
  WorkerLink* channel_ ISOPOOL_GUARDED_BY(mutex_) = nullptr;  // while the request is published
  PendingRequest* request_ ISOPOOL_GUARDED_BY(mutex_) = nullptr;
  uint64_t sequence_ ISOPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace isopool::client
