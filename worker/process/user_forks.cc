// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/user_forks.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace isopool::worker {

namespace {

std::atomic<bool> forkedChild{false};
// In memory that the kernel clears in each child: also in one of fork() without its handlers, as by
// syscall(). Null if the kernel can't.
const volatile char* notForked = nullptr;
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
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const mark =
      ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mark == MAP_FAILED || ::madvise(mark, page, MADV_WIPEONFORK) != 0) return;
  *static_cast<char*>(mark) = 1;
  notForked = static_cast<const char*>(mark);
}

bool isForkedChild() noexcept {
  return forkedChild.load(std::memory_order_relaxed) || (notForked != nullptr && *notForked == 0);
}

}  // namespace isopool::worker
