// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "client/pool/pool.h"
#include "client/transport/worker_link.h"
#include "ipc/tensor/value_types.h"

namespace isopool {

class SessionImpl;

/// The implementation of an Obj: a reference to an object in one life of one worker. The destructor
/// releases the object in the worker and does not wait; it does nothing in a forked child. When the
/// worker dies, the object is lost: its uses throw WorkerLost. Any thread.
class InterpreterObj {
 public:
  /// Takes over the handle, which a request has given, or is about to give, to an object.
  InterpreterObj(const SessionImpl& owner, base::HandleId handle);
  /// For the result of an operation on `origin`: it has the same owner.
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
  /// The number of the session that made it. That session may have ended.
  uint64_t owner() const { return owner_; }

 private:
  std::shared_ptr<client::Pool> pool_;
  std::shared_ptr<client::WorkerLink> channel_;
  uint64_t owner_;
  base::HandleId handle_;
};

/// The implementation of an InterpreterSession: a user of a slot, bound to the worker that served
/// the slot when the session was opened. The session's steps throw WorkerLost when that worker
/// has died: the slot's next worker does not have the session's objects. Any thread; the worker
/// runs the steps one after another.
class SessionImpl {
 public:
  /// Takes over one user of the slot (Pool::addUser()), which the destructor releases.
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
  /// The destructor calls it, after the slot is released; its exceptions are ignored. Set it before
  /// other threads have the session.
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

/// Makes one request that only this worker can run, and waits for the answer; without a deadline
/// until the worker answers or dies. It is not tried on another worker. Throws RemoteError,
/// WorkerLost, DeadlineExceeded, LimitExceeded, SupervisorLost, ArenaFull, Error. WorkerLost and
/// DeadlineExceeded state whether the request had started.
at::IValue step(Pool& pool, WorkerLink& channel, ipc::Operation operation, RequestDraft& draft,
                const Deadline& deadline);

/// How many workers may die while they are prepared for one request: whatever kills each of them
/// would kill the next one.
inline constexpr int kMostLostInPreparation = 3;

/// Counts a death during the preparation, unless the worker ran code of another program. True if it
/// is the last one that the request survives.
inline bool isLastLoss(const WorkerLost& death, int& lost) {
  return !death.ofOtherProgram() && ++lost == kMostLostInPreparation;
}

/// Whether a session has to be admitted to a pool whose supervisor is about to end.
enum class Admission : uint8_t {
  kNeeded,
  kGiven,  ///< it is part of something that the supervisor waits for
};

/// A session on `slot`, or on the least occupied slot if it is null. Waits until a worker serves
/// the slot and the environment was applied to it; if workers die meanwhile, tries their
/// replacements; if the supervisor is lost, those of the next one, see Pool::admit(). Throws
/// DeadlineExceeded, PoolUnavailable, SupervisorLost, what the environment throws, Error, and
/// WorkerLost after kMostLostInPreparation deaths.
std::shared_ptr<SessionImpl> openSession(const std::shared_ptr<Pool>& pool,
                                         const Deadline& deadline,
                                         std::shared_ptr<WorkerSlot> slot = nullptr,
                                         Admission admission = Admission::kNeeded);

}  // namespace client
}  // namespace isopool
