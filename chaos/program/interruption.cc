// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/program/interruption.h"

#include <signal.h>

#include <atomic>

namespace chaos {

namespace {
std::atomic<uint64_t> handled{0};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
}  // namespace

void handleInterruptions() {
  struct sigaction action {};
  action.sa_handler = [](int) { handled.fetch_add(1, std::memory_order_relaxed); };
  ::sigaction(SIGUSR1, &action, nullptr);
}

uint64_t interruptions() { return handled.load(std::memory_order_relaxed); }

}  // namespace chaos
