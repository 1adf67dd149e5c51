// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <utility>

#include "client/worker_link.h"
#include "isopool/observation.h"

namespace isopool::client {

class Pool;

/// A call's record with what only the library itself looks at.
struct ObservedCall {
  CallRecord record;
  const Pool* pool = nullptr;
  int64_t began = 0;  ///< nanoseconds of CLOCK_REALTIME, which torch's profiler also tells
  int64_t ended = 0;
  pid_t thread = 0;

  /// A worker has been found.
  void sentTo(WorkerLink& channel);
  void answered(const Answer& answer);

  std::chrono::steady_clock::time_point start;  // on the clock of durations
  std::chrono::steady_clock::time_point sent;
};

/// Is given a record of every call of this process's pools; a forked process inherits it. Any
/// thread; must not throw.
class CallSink {
 public:
  virtual ~CallSink() = default;
  virtual void called(const ObservedCall& call) = 0;
};

void addCallSink(std::shared_ptr<CallSink> sink);
void removeCallSink(const CallSink* sink);

extern std::atomic<bool> callsAreObserved;

/// Begins and ends a record, of which `call` is then asked for the outcome by the exception in
/// flight.
void beginObservation(ObservedCall& call, const Pool& pool, ipc::Operation operation);
void endObservation(ObservedCall& call, std::exception_ptr error) noexcept;

/// Runs `body` under observation, if there is any; it is given the record or null.
template <typename Body>
auto observed(const Pool& pool, ipc::Operation operation, Body&& body) {
  if (!callsAreObserved.load(std::memory_order_relaxed)) {
    return body(static_cast<ObservedCall*>(nullptr));
  }
  ObservedCall call;
  beginObservation(call, pool, operation);
  try {
    auto result = body(&call);
    endObservation(call, nullptr);
    return result;
  } catch (...) {
    endObservation(call, std::current_exception());
    throw;
  }
}

}  // namespace isopool::client
