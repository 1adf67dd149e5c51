// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

namespace isopool::ipc {

namespace {

// As in the kernel's linux/futex.h of 5.16, which the headers of older systems lack.
struct WaitVectorEntry {
  uint64_t value;
  uint64_t address;
  uint32_t flags;
  uint32_t reserved;
};
constexpr uint32_t kFutex32Bits = 0x02;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kFallbackSleep = 10'000'000;

timespec toTimespec(int64_t nanoseconds) {
  return timespec{static_cast<time_t>(nanoseconds / kSecond), nanoseconds % kSecond};
}

std::atomic<bool> waitVectorMissing{false};

void waitOnOne(const FutexWatch& watch, std::optional<std::chrono::nanoseconds> timeout) {
  timespec relative{};
  if (timeout) relative = toTimespec(std::max<int64_t>(timeout->count(), 0));
  ::syscall(SYS_futex, watch.word, FUTEX_WAIT, watch.expected, timeout ? &relative : nullptr,
            nullptr, 0);
}

}  // namespace

int64_t monotonicNow() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

void futexWait(std::span<const FutexWatch> watches,
               std::optional<std::chrono::nanoseconds> timeout) noexcept {
  if (watches.empty()) return;
  if (watches.size() == 1) return waitOnOne(watches.front(), timeout);
  if (!waitVectorMissing.load(std::memory_order_relaxed)) {
    std::array<WaitVectorEntry, kMaxFutexWatches> entries;
    const size_t count = std::min(watches.size(), entries.size());
    for (size_t i = 0; i < count; ++i) {
      entries[i] = {watches[i].expected, reinterpret_cast<uint64_t>(watches[i].word), kFutex32Bits,
                    0};
    }
    timespec deadline{};
    if (timeout) deadline = toTimespec(monotonicNow() + std::max<int64_t>(timeout->count(), 0));
    const long result = ::syscall(SYS_futex_waitv, entries.data(), count, 0,
                                  timeout ? &deadline : nullptr, CLOCK_MONOTONIC);
    if (result >= 0 || (errno != ENOSYS && errno != EPERM)) return;
    waitVectorMissing.store(true, std::memory_order_relaxed);
  }
  const std::chrono::nanoseconds longest(kFallbackSleep);
  waitOnOne(watches.front(), timeout ? std::min(*timeout, longest) : longest);
}

void futexWake(const SharedWord<uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace isopool::ipc
