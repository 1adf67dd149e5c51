// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cxxabi.h>
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <utility>

#include "client/transport/worker_link.h"
#include "isopool/observation.h"

namespace isopool::client {

class Pool;

/// The record of a call, with fields that only the library itself reads. Used by the thread that
/// makes the call. If the call is tried on several workers, the record is of the last one.
struct ObservedCall {
  CallRecord record;
  const Pool* pool = nullptr;  ///< valid while the sinks are called, not later
  int64_t began = 0;           ///< nanoseconds of CLOCK_REALTIME, which torch's profiler uses too
  int64_t ended = 0;
  pid_t thread = 0;

  /// Notes the worker and the time. Call right before the request is sent.
  void sentTo(WorkerLink& channel);
  /// Notes the request's sequence number.
  void answered(const Answer& answer);

  std::chrono::steady_clock::time_point start;  // for durations, as `sent`
  std::chrono::steady_clock::time_point sent;
};

/// Gets a record of every call of this process's pools, on the thread that made the call. A forked
/// child inherits it. A call of a parent's pool in a forked child is not recorded.
class CallSink {
 public:
  virtual ~CallSink() = default;
  /// Called by several threads at the same time. The call returns to its caller afterwards, or
  /// throws the exception of this function. `call` is valid during this function only.
  virtual void called(const ObservedCall& call) = 0;
};

/// Any thread. A sink that was removed may still get records of calls that end at the same moment;
/// it is destroyed after the last of them.
void addCallSink(std::shared_ptr<CallSink> sink);
void removeCallSink(const CallSink* sink);

/// True if there is a sink.
extern std::atomic<bool> callsAreObserved;

/// Begin and end a record. The type of `error` decides the outcome; null means that the call has
/// returned. endObservation() passes the record to all sinks.
void beginObservation(ObservedCall& call, const Pool& pool, ipc::Operation operation);
void endObservation(ObservedCall& call, std::exception_ptr error);

/// Runs `body` with the record of a call and passes the record to the sinks, also if `body` throws.
/// If there are none, `body` gets null. Returns or throws what `body` does.
template <typename Body>
auto observed(const Pool& pool, ipc::Operation operation, Body&& body) {
  if (!callsAreObserved.load(std::memory_order_relaxed)) {
    return body(static_cast<ObservedCall*>(nullptr));
  }
  ObservedCall call;
  beginObservation(call, pool, operation);
  bool returned = false;
  try {
    auto result = body(&call);
    returned = true;
    endObservation(call, nullptr);
    return result;
  } catch (const abi::__forced_unwind&) {
    throw;  // a function of the program ends the thread: no call returns
  } catch (...) {
    if (!returned) endObservation(call, std::current_exception());
    throw;
  }
}

}  // namespace isopool::client
