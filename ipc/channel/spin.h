// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include "ipc/channel/futex.h"

namespace isopool::ipc {

/// The longest time that a thread spins before it sleeps.
inline constexpr int64_t kLongestSpin = 100'000;  // ns

/// What it takes to wake a process that sleeps, about.
inline constexpr int64_t kWakeUp = 40'000;  // ns

/// Decides how long one side of a channel spins while it waits for the other: up to kLongestSpin if
/// the other side's recent work was short enough that a spin covers it, otherwise not at all. Not
/// the waits are measured but the work: a wait contains wake-ups if the sides slept, so that two
/// sides that sleep would find each other slow for good. One object per direction; not thread-safe.
class SpinBudget {
 public:
  /// Nanoseconds to spin before sleeping. `more` is added to the work that is expected.
  int64_t nanoseconds(int64_t more = 0) const {
    return expectedWork_ + more <= kLongestSpin ? kLongestSpin : 0;
  }
  /// Call it for each piece of the other side's work, from the moment when the other side began to
  /// run until it published the result.
  void worked(int64_t nanoseconds) {
    const int64_t bounded = nanoseconds < 4 * kLongestSpin ? nanoseconds : 4 * kLongestSpin;
    expectedWork_ += (bounded - expectedWork_) / 4;
  }

 private:
  int64_t expectedWork_ = 0;
};

/// The processor on which the calling thread runs; 0 if it can't be determined. A hint: the kernel
/// may move the thread at any time.
uint32_t currentProcessor() noexcept;

/// Moves the calling thread to another processor, if it may run on others. Takes some 20 us. The
/// kernel may move it back at any time.
void leaveProcessor() noexcept;

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
