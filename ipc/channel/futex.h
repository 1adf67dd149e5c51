// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "ipc/channel/layout.h"

namespace isopool::ipc {

/// A shared word and the value at which a sleeper wants to go on sleeping.
struct FutexWatch {
  const SharedWord<uint32_t>* word;
  uint32_t expected;
};

inline constexpr size_t kMaxFutexWatches = 128;

/// Sleeps until one of the words no longer has its expected value and somebody woke it, or
/// `timeout` is over (none: sleeps without one), or for no reason at all: the caller looks again.
/// Works across processes, also through read-only mappings. Where the kernel lacks futex_waitv
/// (before 5.16, or forbidden) and there is more than one word it sleeps at most 10 ms on the
/// first.
void futexWait(std::span<const FutexWatch> watches,
               std::optional<std::chrono::nanoseconds> timeout) noexcept;

/// Wakes every sleeper on `word`.
void futexWake(const SharedWord<uint32_t>& word) noexcept;

/// Nanoseconds of CLOCK_MONOTONIC.
int64_t monotonicNow() noexcept;

}  // namespace isopool::ipc
