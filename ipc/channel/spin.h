// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include "ipc/channel/futex.h"

namespace isopool::ipc {

/// The longest time that a thread spins before it sleeps.
inline constexpr int64_t kLongestSpin = 50'000;  // ns

/// Decides how long one waiter spins: up to kLongestSpin if its recent waits were short enough that
/// a spin covers them, otherwise not at all. One object per waiter; not thread-safe.
class SpinBudget {
 public:
  /// Nanoseconds to spin before sleeping.
  int64_t nanoseconds() const { return expectedWait_ <= kCoverable ? kLongestSpin : 0; }
  /// Call it after each wait with its length, spun or slept.
  void waited(int64_t nanoseconds) {
    const int64_t bounded = nanoseconds < 4 * kCoverable ? nanoseconds : 4 * kCoverable;
    expectedWait_ += (bounded - expectedWait_) / 4;
  }

 private:
  // A wait that slept includes about 40 us for the wake-up, which a spin would have saved.
  static constexpr int64_t kCoverable = kLongestSpin + 40'000;
  int64_t expectedWait_ = 0;
};

/// The processor on which the calling thread runs; 0 if it can't be determined. A hint: the kernel
/// may move the thread at any time.
uint32_t currentProcessor() noexcept;

/// For the body of a spin: leaves the core's resources to the other hardware thread.
inline void pauseProcessor() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

/// Spins until `ready()` returns true, for at most `nanoseconds` from `begin`, a time of
/// monotonicNow(). Returns how long it took, by the last reading of the clock: a further reading
/// would delay the thread that waits for the answer. std::nullopt if it did not become ready.
template <typename Ready>
std::optional<int64_t> spinUntil(Ready&& ready, int64_t begin, int64_t nanoseconds) {
  if (ready()) return 0;
  for (int64_t spun = 0; spun < nanoseconds; spun = monotonicNow() - begin) {
    for (int turn = 0; turn < 8; ++turn) {
      pauseProcessor();
      if (ready()) return spun;
    }
  }
  return std::nullopt;
}

}  // namespace isopool::ipc
