// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <vector>

#include "client/pool.h"

namespace isopool::client {

/// Does `work` for every slot of the pool at the same time, each on a thread of its own under the
/// caller's modes, and returns when all are done: the results in slot order, or what the first
/// slot's that failed threw. Throws what Pool::Broadcast throws before any of it is done.
std::vector<at::IValue> onEverySlot(
    Pool& pool, const std::function<at::IValue(const std::shared_ptr<WorkerSlot>&)>& work);

}  // namespace isopool::client
