// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "isopool/export.h"

/// Events of the runtime for the program's log, and a record of each call for its metrics. While no
/// function is set, each of the two costs one relaxed load.
///
/// A child process that the program forks inherits both functions, for managers that the child
/// makes. If the functions use a lock, the program must make sure that the child does not inherit
/// it locked. Calls of the parent's managers throw Error in the child and are not recorded.
namespace isopool {

/// The severity of an event.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Sets the function that receives events from now on; an empty function ends logging. Events:
///   - kDebug: a worker serves a slot;
///   - kWarning: a worker died, with the cause and its crash log; messages of the supervisor wait
///     for file descriptors; the memory shared with workers is limited;
///   - kError: a slot is quarantined; a supervisor is lost; a callback threw.
///
/// A manager that is made while a function is set writes nothing to the program's standard streams:
/// what its private supervisor logs becomes an event of the same severity, "isopoold: ...", and
/// each line that its workers print becomes a kInfo event, "worker 2 (pid 4711, model NAME): ...".
/// The model is that of the worker's present or last call. A worker may print 64 KiB a second,
/// after a burst of 1 MiB; further lines are dropped, and a warning counts them. Without a function
/// all of them have the program's standard streams. Workers of a shared supervisor print into its
/// log.
///
/// The library holds no lock during the call. Most calls come from the library's control thread,
/// which handles nothing else meanwhile: the logger must return soon and must not call a pool.
/// Calls may overlap on several threads. Exceptions of the logger are ignored. After setLogger()
/// has returned, the previous logger may still run on another thread.
ISOPOOL_EXPORT void setLogger(std::function<void(LogLevel, std::string_view)> logger);

/// The kind of a request to a worker.
enum class CallKind {
  kCall,        ///< a ReplicatedObj was called
  kObjCall,     ///< an Obj was called
  kAttribute,   ///< attr(), hasattr(), global()
  kValue,       ///< toIValue(), fromIValue()
  kStreamItem,  ///< ResultStream::next()
  kOther,       ///< for example: a package's importer, createMovable()
};

/// How a call ended.
enum class CallOutcome {
  kReturned,          ///< with a value
  kRaised,            ///< a Python exception: RemoteError
  kWorkerLost,        ///< WorkerLost
  kDeadlineExceeded,  ///< DeadlineExceeded
  kCancelled,         ///< Cancelled
  kRefused,  ///< any other error: a value that can't cross, a full arena, a pool without workers
  kSupervisorLost,  ///< SupervisorLost
};

/// One call that has ended.
struct CallRecord {
  CallKind kind = CallKind::kOther;
  CallOutcome outcome = CallOutcome::kReturned;
  /// ReplicatedObj::name() of the object that was called; empty for steps of sessions and Objs.
  std::string model;
  std::string method;  ///< by which it was called; empty: the object itself
  uint64_t tag = 0;    ///< CallOptions::tag
  int worker = -1;     ///< the slot of its last worker; -1: no worker had it
  int processId = 0;   ///< of that worker
  uint64_t epoch = 0;  ///< of that worker; with `sequence` it identifies the call in traces
  uint64_t sequence = 0;
  std::chrono::nanoseconds waited{};    ///< for a worker, and for it to unpickle the object
  std::chrono::nanoseconds inWorker{};  ///< from the request to the answer, on the last worker
};

/// Sets the function that receives a record of every call of this process from now on; an empty
/// function ends this. The observer runs on the thread that made the call, or on a thread of the
/// library for an asynchronous call, just before the call returns or throws: a slow observer delays
/// the caller. Calls may overlap on several threads. The library holds no lock during the call.
/// Exceptions of the observer are ignored.
ISOPOOL_EXPORT void setCallObserver(std::function<void(const CallRecord&)> observer);

}  // namespace isopool
