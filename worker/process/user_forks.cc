// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/user_forks.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace isopool::worker {

namespace {

std::atomic<bool> forkedChild{false};
std::array<int, 8> ownDescriptors;
size_t descriptorCount = 0;

// Runs in the child of a process that may have threads: uses only async-signal-safe calls.
void becomeForkedChild() {
  forkedChild.store(true);
  for (size_t i = 0; i < descriptorCount; ++i) ::close(ownDescriptors[i]);
}

}  // namespace

void watchForForks(std::span<const int> descriptors) {
  for (const int fd : descriptors) {
    if (fd >= 0 && descriptorCount < ownDescriptors.size()) ownDescriptors[descriptorCount++] = fd;
  }
  ::pthread_atfork(nullptr, nullptr, &becomeForkedChild);
}

bool isForkedChild() noexcept { return forkedChild.load(std::memory_order_relaxed); }

}  // namespace isopool::worker
