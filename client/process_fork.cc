// SPDX-License-Identifier: BSD-3-Clause
#include "client/process_fork.h"

#include <pthread.h>

#include <atomic>

#include "isopool/errors.h"

namespace isopool::client {

namespace {

std::atomic<uint32_t> generation{0};

void countFork() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

uint32_t forkGeneration() noexcept {
  static const int registered = ::pthread_atfork(nullptr, nullptr, &countFork);
  (void)registered;
  return generation.load(std::memory_order_relaxed);
}

void checkNotForked(uint32_t created) {
  if (created != forkGeneration()) {
    throw Error(
        "this process was forked from the one that made the manager, and pools do not "
        "survive a fork: make a new InterpreterManager in the child");
  }
}

}  // namespace isopool::client
