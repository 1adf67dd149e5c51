// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/broadcast.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>

#include <exception>
#include <string>
#include <system_error>
#include <thread>

#include "base/blocked_signals.h"
#include "base/without_cancellation.h"
#include "client/pool/replica_tracker.h"

namespace isopool::client {

std::vector<at::IValue> onEverySlot(
    Pool& pool, const Deadline& deadline,
    const std::function<at::IValue(const std::shared_ptr<WorkerSlot>&)>& work) {
  const base::WithoutCancellation complete;
  const Pool::Broadcast taken(pool, deadline);
  const auto& slots = pool.slots();
  std::vector<at::IValue> results(slots.size());
  std::vector<std::exception_ptr> errors(slots.size());
  const at::ThreadLocalState modes;
  // at::ThreadLocalState does not contain these two.
  const at::ScalarType autocastType = at::autocast::get_autocast_dtype(at::kCPU);
  const bool autocastCached = at::autocast::is_autocast_cache_enabled();
  const bool restores = ReplicaTracker::thisThreadRestores();
  const auto serve = [&](size_t i) {
    try {
      const at::ThreadLocalStateGuard guard(modes);
      at::autocast::set_autocast_dtype(at::kCPU, autocastType);
      at::autocast::set_autocast_cache_enabled(autocastCached);
      const ReplicaTracker::Restoring scope(restores);
      results[i] = work(slots[i]);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(slots.size());
    const base::BlockedSignals blocked;
    try {
      for (size_t i = 0; i < slots.size(); ++i) threads.emplace_back(serve, i);
    } catch (const std::system_error& error) {
      throw Error(std::string("can't start a thread for each worker: ") + error.what());
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return results;
}

std::vector<at::IValue> callOnEverySlot(const PoolCall& call) {
  Pool& pool = *call.object.pool;
  return onEverySlot(pool, call.deadline, [&](const std::shared_ptr<WorkerSlot>& slot) {
    const Pool::User user(pool, *slot);
    return callOnSlot(call, *slot);
  });
}

}  // namespace isopool::client
