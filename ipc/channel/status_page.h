// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ipc/channel/layout.h"

namespace isopool::ipc {

/// How many names of models a worker's status page holds, and how long each is: a longer one is
/// cut.
inline constexpr size_t kShownModels = 32;
inline constexpr size_t kShownNameBytes = 96;

/// The state that a worker publishes for all its clients and the supervisor: one page with the
/// client whose call runs, the number of clients that wait, and the models that are loaded. Only
/// the worker writes it. Clients map it to choose a free worker: a hint. The supervisor reads it to
/// find the client whose call keeps a worker busy: untrusted, because the worker writes it.
struct WorkerStatusPage {
  /// The supervisor's number of the client whose call runs, or of one that has left and whose
  /// objects are destroyed; 0 if no such code runs.
  alignas(kCacheLinePair) SharedWord<uint64_t> runningClient;
  SharedWord<int64_t> runningSince;  ///< a time of monotonicNow(), exact to a few milliseconds
  /// Number of channels that had a call waiting when the worker took the running call.
  SharedWord<uint32_t> waitingClients;
  SharedWord<uint64_t> lentBlocks;  ///< results that clients hold
  SharedWord<uint64_t> lentBytes;
  /// Bytes in the arenas of clients that are gone, to which objects of the worker still refer.
  SharedWord<uint64_t> zombieBytes;
  SharedWord<uint64_t> keptBytes;  ///< tensors in shared memory that models keep between calls
  /// 1 + the index in `models` of the model of the running call, or of the last one if none runs.
  /// 0: that call was of no model, or the page does not name its model.
  SharedWord<uint32_t> model;
  /// Names of loaded models (ReplicatedObj::name()), filled up with zero bytes; all zero: free. Not
  /// synchronised: a reader may see half of an old and half of a new name.
  char models[kShownModels][kShownNameBytes];
  /// The client whose request or whose objects the worker handled last; stays after that. 0: none
  /// yet. If the worker dies while no call runs, that client's code probably ended it.
  SharedWord<uint64_t> lastClient;
  /// 1 while the worker collects garbage between two calls: destructors of any client may run.
  SharedWord<uint32_t> collecting;
};

static_assert(std::is_standard_layout_v<WorkerStatusPage> && sizeof(WorkerStatusPage) <= 4096);

}  // namespace isopool::ipc
