// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <type_traits>

#include "ipc/channel/layout.h"

namespace isopool::ipc {

/// What a worker tells to all at once, one page: whose call it runs and who waits. Written by the
/// worker only; its clients map it to choose the worker that is free, the supervisor reads it to
/// see whose call keeps a worker busy. A hint to the first, and to the second no more than the
/// worker's word about itself.
struct WorkerStatusPage {
  /// The supervisor's number of the client whose call runs, 0 if none does.
  alignas(kCacheLinePair) SharedWord<uint64_t> runningClient;
  SharedWord<int64_t> runningSince;  ///< on monotonicNow()'s clock, right to a few milliseconds
  /// Channels that had a call waiting when the running one was taken.
  SharedWord<uint32_t> waitingClients;
  SharedWord<uint64_t> lentBlocks;  ///< results that clients hold
  SharedWord<uint64_t> lentBytes;
  /// Of the arenas of clients that are gone, still referred to by what the worker keeps.
  SharedWord<uint64_t> zombieBytes;
};

static_assert(std::is_standard_layout_v<WorkerStatusPage> && sizeof(WorkerStatusPage) <= 4096);

}  // namespace isopool::ipc
