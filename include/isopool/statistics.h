// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isopool/counters.h"

namespace isopool {

/// One worker slot of a manager. Counts are since the manager began, over all lives of the slot's
/// workers, unless they say otherwise.
struct WorkerStatistics {
  enum class State {
    kServing,
    kStarting,     ///< its worker died, and a replacement is on its way
    kQuarantined,  ///< its workers keep dying; `quarantine` says how and for how long
    /// Its worker runs what no thread waits for: the release of an Obj, the `finally` of a closed
    /// stream, an unload. Calls and new sessions avoid it meanwhile.
    kCleaningUp,
  };
  uint32_t index = 0;
  State state = State::kStarting;
  int processId = 0;            ///< 0 unless there is a worker
  uint64_t epoch = 0;           ///< of this worker's life; 0 unless there is one
  uint32_t callsInFlight = 0;   ///< of ReplicatedObjs: running, or next in its ring; at most two
  uint32_t stepsInFlight = 0;   ///< of sessions and streams, and preparations, that a thread awaits
  uint32_t sessions = 0;        ///< sessions and streams that are bound to the slot
  uint64_t completedCalls = 0;  ///< calls and session steps
  uint64_t restarts = 0;
  std::string quarantine;

  /// Why the last one died; zeros and empty if none has.
  int lastSignal = 0;
  int lastExitCode = 0;
  std::string lastDeath;  ///< "worker 1 (pid 4711) died by signal 9 (SIGKILL)"

  /// Its memory for results, of this life.
  uint64_t outputBytes = 0;      ///< capacity
  uint64_t outputBytesLent = 0;  ///< in results that this program still holds
  uint64_t outputBlocksLent = 0;
};

struct PoolStatistics {
  std::vector<WorkerStatistics> workers;  ///< by index
  uint64_t callersWaiting = 0;            ///< threads that wait for a turn
  uint64_t asyncCallsQueued = 0;          ///< asynchronous calls that no thread has begun to make
  uint64_t callsRerun = 0;                ///< as InterpreterManager::callsRerun()
  uint64_t workersReplaced = 0;           ///< as InterpreterManager::workersReplaced()

  // Of the whole process, over all managers.
  uint64_t inputBytes = 0;       ///< capacity of the memory of isopool::empty and copied inputs
  uint64_t inputBytesInUse = 0;  ///< in tensors, and in inputs that calls have borrowed
  CopyCounters copied;
};

}  // namespace isopool
