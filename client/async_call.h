// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/pool_call.h"
#include "isopool/async.h"

namespace isopool {

namespace client {
class AsyncExecutor;
}

/// The body of a PendingCall: what is asked, and what became of it. Whoever brings the first
/// outcome settles it: the executor's thread that made the call, cancel(), its deadline, the
/// manager's end.
class AsyncCall {
 public:
  using Callback = std::function<void(const Outcome&)>;
  using Named = std::unordered_map<std::string, c10::IValue>;

  AsyncCall(std::shared_ptr<ReplicatedObjImpl> object, std::vector<at::IValue> args, Named kwargs,
            const CallOptions& options, Callback callback,
            std::shared_ptr<client::AsyncExecutor> executor);
  AsyncCall(const AsyncCall&) = delete;
  AsyncCall& operator=(const AsyncCall&) = delete;

  /// On the executor's thread: makes the call, unless it was settled while it was queued.
  void run();
  /// Settles it if no thread has begun to make it.
  void settleIfQueued(std::exception_ptr error);
  bool cancel();
  const client::Deadline& deadline() const { return how_.deadline; }

  /// Null if there is no outcome by then. Throws Error in a forked child.
  const Outcome* outcome(const client::Deadline& until);

 private:
  enum class Phase { kQueued, kRunning, kSettling };

  bool leaveQueue(Phase next);
  void dropRequest();
  void settle(Outcome outcome);

  const uint32_t generation_;
  std::atomic<Phase> phase_{Phase::kQueued};
  client::CancellationToken cancellation_;
  client::PoolCall how_;  // never changed

  const std::shared_ptr<client::AsyncExecutor> executor_;
  const std::shared_ptr<client::CallLimit> limit_;

  // The one who moved phase_ away from kQueued has these, and lets them go.
  std::shared_ptr<ReplicatedObjImpl> object_;
  std::vector<at::IValue> args_;
  Named kwargs_;
  // The one who moved it to kSettling has this.
  Callback callback_;
  std::optional<client::CallLimit::Place> place_;

  std::mutex mutex_;
  std::condition_variable settled_;
  std::optional<Outcome> outcome_;
};

}  // namespace isopool
