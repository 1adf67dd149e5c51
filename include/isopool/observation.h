// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

/// What the runtime tells the program about itself: events for its log, and a record of each call
/// for its metrics. Unset, either costs one relaxed load.
///
/// A child that the program forks inherits both functions for the managers that it makes. If they
/// lock something, the program sees to it that the child does not inherit it locked. Calls of the
/// parent's managers, which throw Error in the child, are not recorded.
namespace isopool {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Gives events to the program's own log from now on; an empty function ends that. Workers that are
/// assigned to a slot (kDebug), that died and why, replacements that wait for descriptors
/// (kWarning), slots that are quarantined, supervisors that are lost, callbacks that threw
/// (kError).
///
/// The logger is called without any lock of the library held, but mostly on the library's control
/// thread, of which nothing moves meanwhile: it returns soon and makes no calls of a pool. Calls of
/// it may overlap. What it throws is dropped. After setLogger() has returned, an earlier logger may
/// still be running on another thread.
void setLogger(std::function<void(LogLevel, std::string_view)> logger);

/// What was asked of a worker.
enum class CallKind {
  kCall,        ///< a ReplicatedObj was called
  kObjCall,     ///< an Obj was called
  kAttribute,   ///< attr(), hasattr(), global()
  kValue,       ///< toIValue(), fromIValue()
  kStreamItem,  ///< ResultStream::next()
  kOther,
};

enum class CallOutcome {
  kReturned,
  kRaised,  ///< a Python exception
  kWorkerLost,
  kDeadlineExceeded,
  kCancelled,
  kRefused,  ///< any other error: a value that can't cross, a full arena, a pool without workers
};

/// One call, when it has ended.
struct CallRecord {
  CallKind kind = CallKind::kOther;
  CallOutcome outcome = CallOutcome::kReturned;
  int worker = -1;     ///< the slot of the worker that had it last; -1: none had it
  int processId = 0;   ///< of that worker
  uint64_t epoch = 0;  ///< of that worker's life; with `sequence` the call's number in traces
  uint64_t sequence = 0;
  std::chrono::nanoseconds waited{};    ///< for a turn, and while the worker unpickled the object
  std::chrono::nanoseconds inWorker{};  ///< from sending it to the answer, on the last worker
};

/// Has every call of this process recorded from now on; an empty function ends that. The observer
/// is called on the thread that made the call (for an asynchronous call: one of the library's),
/// just before the caller goes on, without any lock of the library held. What it throws is dropped.
void setCallObserver(std::function<void(const CallRecord&)> observer);

}  // namespace isopool
