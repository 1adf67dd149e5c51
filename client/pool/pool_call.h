// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/util/ArrayRef.h>

#include <functional>
#include <optional>
#include <string_view>

#include "client/pool/replicated_object.h"
#include "client/transport/cancellation_token.h"
#include "client/transport/worker_link.h"
#include "ipc/tensor/value_types.h"
#include "isopool/call_options.h"

namespace isopool::client {

class PoolMigration;

/// The deadline of a call with these options that begins now; empty if Pool::noKill().
Deadline deadlineOf(const Pool& pool, const CallOptions& options);

/// Options with this deadline only, for a step of an operation of several.
CallOptions optionsUntil(const Deadline& deadline);

/// One call of a replicated object as data. Every way of making a call fills one, and each attempt
/// writes its request from it. Owns nothing: its maker keeps the object and the arguments alive
/// until the call has ended. Constant while the call runs.
struct PoolCall {
  /// A call that begins now. `namedArguments` may be null.
  explicit PoolCall(const ReplicatedObjImpl& callee, at::ArrayRef<at::IValue> arguments = {},
                    const NamedArguments* namedArguments = nullptr, const CallOptions& options = {})
      : object(callee),
        args(arguments),
        kwargs(namedArguments),
        deadline(deadlineOf(*callee.pool, options)),
        runTime(options.runTime),
        idempotent(options.idempotent),
        flags(flagsOf(options)),
        tag(options.tag) {}

  /// From now on it calls the method of the object; an empty name: the object itself. The text must
  /// live as long as the call.
  void callMethod(std::string_view name) {
    operation = name.empty() ? ipc::Operation::kCallObject : ipc::Operation::kCallMethod;
    attribute = name;
  }

  /// Writes the request of this operation. Throws ipc::ValueError if a value can't be passed.
  void draft(RequestDraft& draft) const;

  const ReplicatedObjImpl& object;
  ipc::Operation operation = ipc::Operation::kCallObject;
  at::ArrayRef<at::IValue> args;
  const NamedArguments* kwargs;  ///< null: none
  /// For kObjectHasAttribute, in place of arguments, and for kCallMethod.
  std::string_view attribute{};
  Deadline deadline;                                  ///< for the whole call, with all its attempts
  std::optional<std::chrono::nanoseconds> runTime{};  ///< see CallOptions::runTime
  bool idempotent = false;  ///< it may run again after a worker's death during it
  uint32_t flags = 0;       ///< ipc::SubmissionFlags that the options ask for
  uint64_t tag = 0;         ///< see CallOptions::tag
  /// The modes of the thread that requested the call, if another thread makes it.
  std::optional<uint32_t> modes = std::nullopt;
  CancellationToken* cancellation = nullptr;  ///< not owned; null: can't be cancelled
  bool accepted = false;                      ///< see Pool::reserveWorker()
  EntryTurn* turn = nullptr;                  ///< see Pool::reserveWorker(); null: in no order
};

/// The error of a call that was cancelled before it started.
Cancelled cancelledCall();
/// The error of a call that was stopped while the worker of this channel ran it.
Cancelled stoppedCall(WorkerLink& channel);
/// Throws DeadlineExceeded for a request that had not started. `what`: "call" or "step".
[[noreturn]] void throwNotStartedInTime(const std::string& worker, const char* what);
/// Throws DeadlineExceeded for a request that ran past its deadline in the worker of this channel.
[[noreturn]] void throwOverdue(WorkerLink& channel, const char* what);

/// Makes the call on a worker of the pool and waits for the answer. If the worker dies before the
/// call has started (or at any time, if the call is idempotent), makes it again on another worker;
/// that may happen any number of times. The workers make the object where it is missing.
///
/// Throws RemoteError, WorkerLost, DeadlineExceeded, Cancelled, PoolUnavailable, SupervisorLost,
/// LimitExceeded, ArenaFull, Error. WorkerLost, DeadlineExceeded and SupervisorLost state whether
/// the call had started.
at::IValue callOnPool(const PoolCall& call);

/// The same for a call that this thread stops when `interrupted` returns true, see CallOptions.
at::IValue callOnPool(PoolCall& call, const std::function<bool()>& interrupted);

/// The same on the worker of one slot, or on its replacement. Waits for a replacement, and does not
/// wait in the pool's line.
at::IValue callOnSlot(const PoolCall& call, WorkerSlot& slot);

/// Defines an object in a worker where it is missing, and lets the program restore the state that
/// the object lost with an earlier worker. One per use of the object, for all workers on which the
/// use is tried: it counts their deaths. Used by one thread; `object` must outlive it.
class Preparation {
 public:
  Preparation(const ReplicatedObjImpl& object, const Deadline& deadline)
      : object_(object), deadline_(deadline) {}
  /// Waits until the object is ready in the worker. False if another worker is to be tried: this
  /// one died during the preparation, or `migration` has found one that is free earlier. Throws
  /// what WorkerSetup::define() and the program's callback throw, and WorkerLost after
  /// kMostLostInPreparation deaths.
  bool on(WorkerLink& channel, PoolMigration* migration = nullptr);

 private:
  const ReplicatedObjImpl& object_;
  const Deadline deadline_;
  int lost_ = 0;
};

}  // namespace isopool::client
