// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace isopool::client {

class WorkerLink;
enum class RequestOutcome : uint32_t;
struct PendingRequest;

/// By which any thread takes back a request that another thread makes. Lives longer than the
/// request; serves one request, over all the workers that it may be tried on.
class CancellationToken {
 public:
  /// True if user code of the request has not run and never will; its thread then sees
  /// RequestOutcome::kWithdrawn (or kNeverStarted). False if it started or ended.
  bool cancel();
  /// The request has ended, whatever became of it: nothing can be taken back any more. True if it
  /// was.
  bool end();
  bool requested() const { return requested_.load(std::memory_order_acquire); }

 private:
  friend class WorkerLink;
  // Needs mutex_.
  void enter(WorkerLink& channel, PendingRequest& request, uint64_t sequence);
  void leave(RequestOutcome outcome);

  std::mutex mutex_;
  std::atomic<bool> requested_{false};
  bool over_ = false;
  WorkerLink* channel_ = nullptr;  // while it is published
  PendingRequest* request_ = nullptr;
  uint64_t sequence_ = 0;
};

}  // namespace isopool::client
