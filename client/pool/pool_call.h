// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <optional>

#include "client/pool/replicated_object.h"
#include "client/transport/cancellation_token.h"
#include "client/transport/worker_link.h"
#include "isopool/call_options.h"

namespace isopool::client {

class PoolMigration;

/// The deadline of a call with these options that begins now; empty if Pool::noKill().
Deadline deadlineOf(const Pool& pool, const CallOptions& options);

/// The options of one call of a replicated object. Constant while the call runs.
struct PoolCall {
  PoolCall() = default;
  /// A call with these options that begins now.
  PoolCall(const Pool& pool, const CallOptions& options)
      : deadline(deadlineOf(pool, options)),
        idempotent(options.idempotent),
        permissive(options.permissive) {}

  ipc::Operation operation = ipc::Operation::kCallObject;
  Deadline deadline;        ///< for the whole call, with all its attempts
  bool idempotent = false;  ///< it may run again after a worker's death during it
  bool permissive = false;  ///< see ipc::kPermissive
  /// The modes of the thread that requested the call, if another thread makes it.
  std::optional<uint32_t> modes = std::nullopt;
  CancellationToken* cancellation = nullptr;  ///< not owned; null: can't be cancelled
  bool accepted = false;                      ///< see Pool::reserveWorker()
};

/// Writes the request of kCallObject. Throws ipc::ValueError if a value can't be passed.
void draftCall(RequestDraft& draft, const ReplicatedObjImpl& object, at::ArrayRef<at::IValue> args,
               const std::unordered_map<std::string, c10::IValue>& kwargs);

/// The error of a call that was cancelled before it started.
Cancelled cancelledCall();
/// Throws DeadlineExceeded for a request that had not started. `what`: "call" or "step".
[[noreturn]] void throwNotStartedInTime(const std::string& worker, const char* what);
/// Throws DeadlineExceeded for a request that ran past its deadline in the worker of this channel.
[[noreturn]] void throwOverdue(WorkerLink& channel, const char* what);

/// Makes the call on a worker of the pool and waits for the answer. If the worker dies before the
/// call has started (or at any time, if the call is idempotent), makes it again on another worker;
/// that may happen any number of times. `fill` writes the request and is called for each attempt,
/// on this thread and without a lock. The workers make the object where it is missing.
///
/// Throws RemoteError, WorkerLost, DeadlineExceeded, Cancelled, PoolUnavailable, SupervisorLost,
/// LimitExceeded, ArenaFull, Error. WorkerLost, DeadlineExceeded and SupervisorLost state whether
/// the call had started.
at::IValue callOnPool(const ReplicatedObjImpl& object, const PoolCall& call,
                      const std::function<void(RequestDraft&)>& fill);

/// The same on the worker of one slot, or on its replacement. Waits for a replacement, and does not
/// wait in the pool's line.
at::IValue callOnSlot(const ReplicatedObjImpl& object, WorkerSlot& slot, const PoolCall& call,
                      const std::function<void(RequestDraft&)>& fill);

/// Defines an object in a worker where it is missing, and lets the program restore the state that
/// the object lost with an earlier worker. One per use of the object, for all workers on which the
/// use is tried: it counts their deaths. Used by one thread; `object` must outlive it.
class Preparation {
 public:
  Preparation(const ReplicatedObjImpl& object, const Deadline& deadline)
      : object_(object), deadline_(deadline) {}
  /// Waits until the object is ready in the worker. False if another worker is to be tried: this
  /// one died during the preparation, or `migration` has found one that is free earlier. Throws
  /// what Pool::define() and the program's callback throw, and WorkerLost after
  /// kMostLostInPreparation deaths.
  bool on(WorkerLink& channel, PoolMigration* migration = nullptr);

 private:
  const ReplicatedObjImpl& object_;
  const Deadline deadline_;
  int lost_ = 0;
};

}  // namespace isopool::client
