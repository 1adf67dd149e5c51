// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <optional>

#include "client/channel.h"
#include "client/recall.h"
#include "client/replicated_object.h"
#include "isopool/call_options.h"

namespace isopool::client {

/// When a call with these options is to be given up, if it begins now.
Deadline deadlineOf(const Pool& pool, const CallOptions& options);

/// One call of a replicated object.
struct PoolCall {
  ipc::Operation operation = ipc::Operation::kCallObject;
  Deadline deadline;
  bool idempotent = false;
  bool permissive = false;
  /// Of the thread that wanted the call, if that is another one.
  std::optional<uint32_t> modes = std::nullopt;
  Recall* recall = nullptr;
};

/// Writes a request.
using Fill = std::function<void(RequestDraft&)>;

/// Makes it, again elsewhere when its worker died before it started (or at all, if it is idempotent).
/// Throws RemoteError, WorkerLost, DeadlineExceeded, Cancelled,
/// PoolUnavailable, SupervisorLost, ArenaFull, Error.
at::IValue callOnPool(const ReplicatedObjImpl& object, const PoolCall& call, const Fill& fill);

/// The same on the worker of one slot, or its replacement.
at::IValue callOnSlot(const ReplicatedObjImpl& object, WorkerSlot& slot, const PoolCall& call,
                      const Fill& fill);

}  // namespace isopool::client
