// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/broadcast.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <pthread.h>
#include <signal.h>

#include <exception>
#include <thread>

#include "client/pool/replica_tracker.h"

namespace isopool::client {

std::vector<at::IValue> onEverySlot(
    Pool& pool, const std::function<at::IValue(const std::shared_ptr<WorkerSlot>&)>& work) {
  const Pool::Broadcast taken(pool);
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
    // The new threads block all signals: these are for the program's own threads.
    sigset_t all;
    sigset_t previous;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &previous);
    try {
      for (size_t i = 0; i < slots.size(); ++i) threads.emplace_back(serve, i);
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &previous, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return results;
}

}  // namespace isopool::client
