// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "client/pool/pool.h"
#include "client/pool/pool_call.h"
#include "ipc/tensor/value_types.h"

namespace isopool::client {

/// Runs `work` once for every slot of the pool, all at the same time, each on a thread of its own
/// under the caller's torch modes. Also for slots beyond Pool::limitSlots() and for slots without a
/// worker: `work` decides whether to wait for one. Returns the results in slot order when all
/// threads have ended, without a time limit of its own.
///
/// If `work` failed for some slots, throws the exception of the first of them in slot order; the
/// others have run nevertheless. Waits for the supervisor and throws as Pool::Broadcast with
/// `deadline`, before any work starts, and Error if a thread can't be started, when the threads
/// before it have ended.
std::vector<at::IValue> onEverySlot(
    Pool& pool, const Deadline& deadline,
    const std::function<at::IValue(const std::shared_ptr<WorkerSlot>&)>& work);

/// Makes the call on the worker of every slot, see onEverySlot() and callOnSlot(). Throws what
/// these throw.
std::vector<at::IValue> callOnEverySlot(const PoolCall& call);

}  // namespace isopool::client
