// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/pool.h"
#include "client/worker_link.h"

namespace isopool {

class SessionImpl;

/// The body of an Obj: an object in one life of one worker.
class InterpreterObj {
 public:
  InterpreterObj(const SessionImpl& owner, base::HandleId handle);
  /// One that an operation on `origin` made: it has the same owner.
  InterpreterObj(const InterpreterObj& origin, base::HandleId handle)
      : pool_(origin.pool_), channel_(origin.channel_), owner_(origin.owner_), handle_(handle) {
    channel_->objMade();
  }
  ~InterpreterObj() { channel_->releaseObj(handle_); }
  InterpreterObj(const InterpreterObj&) = delete;
  InterpreterObj& operator=(const InterpreterObj&) = delete;

  const std::shared_ptr<client::Pool>& pool() const { return pool_; }
  const std::shared_ptr<client::WorkerLink>& channel() const { return channel_; }
  base::HandleId handle() const { return handle_; }
  /// The number of the session that made it, which may be gone.
  uint64_t owner() const { return owner_; }

 private:
  std::shared_ptr<client::Pool> pool_;
  std::shared_ptr<client::WorkerLink> channel_;
  uint64_t owner_;
  base::HandleId handle_;
};

/// The body of an InterpreterSession: a user of a slot, bound to the worker that serves it now.
class SessionImpl {
 public:
  SessionImpl(std::shared_ptr<client::Pool> poolOfSlot, std::shared_ptr<WorkerSlot> usedSlot,
              std::shared_ptr<client::WorkerLink> channelOfWorker)
      : pool(std::move(poolOfSlot)),
        slot(std::move(usedSlot)),
        channel(std::move(channelOfWorker)),
        number(nextNumber()) {}
  ~SessionImpl();
  SessionImpl(const SessionImpl&) = delete;
  SessionImpl& operator=(const SessionImpl&) = delete;

  const std::shared_ptr<client::Pool> pool;
  const std::shared_ptr<WorkerSlot> slot;
  const std::shared_ptr<client::WorkerLink> channel;
  const uint64_t number;  ///< no other session of this process has it
  std::function<void()> whenEnded;

 private:
  static uint64_t nextNumber() {
    static std::atomic<uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
  }
};

inline InterpreterObj::InterpreterObj(const SessionImpl& owner, base::HandleId handle)
    : pool_(owner.pool), channel_(owner.channel), owner_(owner.number), handle_(handle) {
  channel_->objMade();
}

namespace client {

/// One step on one worker that can't be run elsewhere. Throws RemoteError, WorkerLost,
/// DeadlineExceeded, Error.
at::IValue step(Pool& pool, WorkerLink& channel, ipc::Operation operation, RequestDraft& draft,
                const Deadline& deadline = std::nullopt);

/// How many workers one request may lose while they are made ready for it: what kills each would
/// kill the next.
inline constexpr int kMostLostInPreparation = 3;

/// A session on a free slot or the given one, its worker configured.
std::shared_ptr<SessionImpl> openSession(const std::shared_ptr<Pool>& pool,
                                         std::shared_ptr<WorkerSlot> slot = nullptr);

/// Adds positional and named arguments as operations carry them. Throws ipc::ValueError.
void draftArguments(RequestDraft& draft, at::ArrayRef<at::IValue> args,
                    const std::unordered_map<std::string, c10::IValue>& kwargs);

}  // namespace client
}  // namespace isopool
