// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "isopool/counters.h"
#include "isopool/latency_histogram.h"

namespace isopool {

/// One worker slot of a manager, as InterpreterManager::statistics() found it. Counters start
/// with the manager and include all workers that the slot has had, unless their comment names
/// another scope.
struct WorkerStatistics {
  enum class State {
    kServing,      ///< the worker takes calls
    kStarting,     ///< the slot has no worker; one is being started
    kQuarantined,  ///< its workers died repeatedly; `quarantine` has the cause and the time
    /// The worker runs clean-up code that no thread waits for: the release of an Obj, the `finally`
    /// of a closed stream, an unload. Calls and new sessions avoid the worker meanwhile.
    kCleaningUp,
    kWarmingUp,  ///< makes the calls of ReplicatedObj::warmUp() and takes no others yet
  };
  uint32_t index = 0;  ///< position in InterpreterManager::allInstances()
  State state = State::kStarting;
  int processId = 0;            ///< 0 while the slot has no worker
  uint64_t epoch = 0;           ///< number of this worker, never reused; 0 while there is no worker
  uint32_t callsInFlight = 0;   ///< of ReplicatedObjs: running or next in its ring; at most two
  uint32_t stepsInFlight = 0;   ///< steps and preparations that a thread waits for
  uint32_t sessions = 0;        ///< sessions and streams that are bound to the slot
  uint64_t completedCalls = 0;  ///< calls and steps
  /// How long its present call or step has run, of whichever program; zero if it runs none. The
  /// worker's own figure, exact to some milliseconds.
  std::chrono::nanoseconds runningFor{0};
  std::vector<std::string>
      models;  ///< that it has loaded for this manager, by ModelStatistics::name
  /// Resident memory of the worker that belongs to no file and no shared memory; includes pages
  /// that it still shares with its siblings. 0 while there is no worker.
  uint64_t residentBytes = 0;
  uint64_t restarts = 0;   ///< how often the slot got another worker
  std::string quarantine;  ///< why the slot stays empty; empty if it is not quarantined

  /// How the slot's last dead worker died. Zeros and empty if none has died.
  int lastSignal = 0;
  int lastExitCode = 0;
  std::string lastDeath;  ///< "worker 1 (pid 4711) died by signal 9 (SIGKILL)"

  /// Shared memory of the present worker for results.
  uint64_t outputBytes = 0;       ///< capacity
  uint64_t outputBytesLent = 0;   ///< in results that this program still holds
  uint64_t outputBlocksLent = 0;  ///< the number of memory blocks in these results
};

/// The calls of one model of a manager, however they were made: of its ReplicatedObj, not of Objs.
/// A stream is one call, from its beginning until it ends or is closed, with the program's own time
/// between two items.
/// Objects of the same name are one model: those that were loaded from files of the same name, and
/// all moved objects. Counters start with the manager.
struct ModelStatistics {
  std::string name;       ///< see ReplicatedObj::name()
  uint64_t answered = 0;  ///< calls that returned a value
  uint64_t failed = 0;    ///< calls that threw
  uint32_t workers = 0;   ///< how many workers have loaded it now
  /// Of the answered calls, as their callers saw them: with the time in line and for loading.
  LatencyHistogram latency;
};

/// A snapshot of a manager's pool. Its values were not all read at the same instant.
struct PoolStatistics {
  std::vector<WorkerStatistics> workers;  ///< by index
  std::vector<ModelStatistics> models;    ///< by name
  uint64_t callersWaiting = 0;            ///< threads that wait for a worker
  uint64_t asyncCallsQueued = 0;          ///< asynchronous calls that wait for a library thread
  uint64_t callsRerun = 0;                ///< as InterpreterManager::callsRerun()
  uint64_t workersReplaced = 0;           ///< as InterpreterManager::workersReplaced()
  bool connected = true;                  ///< false while the manager has no supervisor
  uint64_t reconnects = 0;  ///< how often the manager has attached to a shared supervisor again

  // Of the whole process, over all managers.
  uint64_t inputBytes = 0;       ///< memory held for isopool::empty and copied inputs
  uint64_t inputBytesInUse = 0;  ///< of that, in tensors and in inputs that are lent to calls
  /// The largest tensor that fits without more memory from the system.
  uint64_t inputLargestFreeBlock = 0;
  CopyCounters copied;  ///< as copyCounters()
};

}  // namespace isopool
