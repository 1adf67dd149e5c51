// SPDX-License-Identifier: BSD-3-Clause
#include "client/program/process_fork.h"

#include <pthread.h>

#include <atomic>
#include <string>

namespace isopool::client {

namespace {

std::atomic<uint32_t> generation{0};

void countFork() { generation.fetch_add(1, std::memory_order_relaxed); }

// Registered when the library is loaded: a static variable of a function would be initialised under
// a lock, which a forked child may inherit locked.
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, &countFork);

}  // namespace

uint32_t forkGeneration() noexcept { return generation.load(std::memory_order_relaxed); }

void checkNotForked(uint32_t created, const char* what) {
  if (created != forkGeneration()) {
    throw ForkedError(std::string("the ") + what +
                      " works only in the process that made it, and this process was forked from "
                      "that one: make a new " +
                      what + " in the child");
  }
}

}  // namespace isopool::client
