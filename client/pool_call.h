// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <optional>

#include "client/cancellation_token.h"
#include "client/replicated_object.h"
#include "client/worker_link.h"
#include "isopool/call_options.h"

namespace isopool::client {

class Migration;

/// When a call with these options is to be given up, if it begins now.
Deadline deadlineOf(const Pool& pool, const CallOptions& options);

/// How one call of a replicated object is to be made.
struct PoolCall {
  PoolCall() = default;
  /// A call with these options that begins now.
  PoolCall(const Pool& pool, const CallOptions& options)
      : deadline(deadlineOf(pool, options)),
        idempotent(options.idempotent),
        permissive(options.permissive) {}

  ipc::Operation operation = ipc::Operation::kCallObject;
  Deadline deadline;
  bool idempotent = false;
  bool permissive = false;
  /// Of the thread that wanted the call, if that is another one.
  std::optional<uint32_t> modes = std::nullopt;
  CancellationToken* cancellation = nullptr;
  bool accepted = false;  ///< as Pool::reserveWorker() has it
};

/// Writes the request of kCallObject. Throws ipc::ValueError.
void draftCall(RequestDraft& draft, const ReplicatedObjImpl& object, at::ArrayRef<at::IValue> args,
               const std::unordered_map<std::string, c10::IValue>& kwargs);

/// What a call comes to that was taken back before it started.
Cancelled cancelledCall();
/// `what` had not started: a call, a step.
[[noreturn]] void throwNotStartedInTime(const std::string& worker, const char* what);
/// It runs in the worker of this channel, past its deadline.
[[noreturn]] void throwOverdue(WorkerLink& channel, const char* what);

/// Makes it, again elsewhere when its worker died before it started (or at all, if it is
/// idempotent). `fill` writes the request. Throws RemoteError, WorkerLost, DeadlineExceeded,
/// Cancelled, PoolUnavailable, SupervisorLost, ArenaFull, Error.
at::IValue callOnPool(const ReplicatedObjImpl& object, const PoolCall& call,
                      const std::function<void(RequestDraft&)>& fill);

/// The same on the worker of one slot, or its replacement.
at::IValue callOnSlot(const ReplicatedObjImpl& object, WorkerSlot& slot, const PoolCall& call,
                      const std::function<void(RequestDraft&)>& fill);

/// Sees to it that a worker has an object, and that the program has restored what a death took from
/// it. One for each use, over all workers that it is tried on.
class Preparation {
 public:
  Preparation(const ReplicatedObjImpl& object, const Deadline& deadline)
      : object_(object), deadline_(deadline) {}
  /// False if another worker is to be tried: this one died of it, or `migration` has found one that
  /// is free first. Throws what define() throws, and WorkerLost after several deaths.
  bool on(WorkerLink& channel, Migration* migration = nullptr);

 private:
  const ReplicatedObjImpl& object_;
  const Deadline deadline_;
  int lost_ = 0;
};

}  // namespace isopool::client
