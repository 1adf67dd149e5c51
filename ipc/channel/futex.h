// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "ipc/channel/layout.h"

namespace isopool::ipc {

/// A shared word, and the value while which a thread sleeps on it.
struct FutexWatch {
  const SharedWord<uint32_t>* word;
  uint32_t expected;
};

/// The most words that futexWait() watches; it ignores further ones.
inline constexpr size_t kMaxFutexWatches = 128;

/// Sleeps until a thread or the kernel wakes one of the words, or until `timeout` is over (nullopt:
/// no time-out). Returns at once if a word does not have its expected value or if there is none.
/// May return without a reason: the caller checks again. Works across processes, also through
/// read-only mappings. If the kernel has no futex_waitv (before 5.16, or forbidden) and there is
/// more than one word, it sleeps on the first word only, for at most 10 ms. Any thread may call it.
void futexWait(std::span<const FutexWatch> watches,
               std::optional<std::chrono::nanoseconds> timeout) noexcept;

/// Wakes every thread that sleeps on `word`, in all processes. A system call, also if none sleeps.
/// The word may lie in a read-only mapping.
void futexWake(const SharedWord<uint32_t>& word) noexcept;

/// The time of CLOCK_MONOTONIC in nanoseconds.
int64_t monotonicNow() noexcept;

}  // namespace isopool::ipc
