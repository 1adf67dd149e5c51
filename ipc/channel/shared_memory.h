// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/channel/futex.h"
#include "ipc/channel/layout.h"
#include "ipc/crash_point.h"

namespace isopool::ipc {

/// The `Memory` with which the templates of ring.h serve calls: atomics in shared memory, futexes
/// and crash points.
struct SharedMemory {
  template <typename T>
  using Word = SharedWord<T>;

  static void wake(const Word<uint32_t>& word) noexcept { futexWake(word); }
  static void reach(CrashPoint point) noexcept { reachCrashPoint(point); }
};

}  // namespace isopool::ipc
