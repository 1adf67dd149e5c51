// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "isopool/export.h"

namespace isopool {

class InterpreterManager;
class TraceImpl;

/// Records what the callers and the workers of one manager do, on one time line. While the object
/// exists, it records every call with its thread, and torch.profiler runs in each worker, with a
/// range around each call. An arrow leads from the caller's range to the worker's range. Use it for
/// seconds or minutes: all records stay in memory, and the profiler slows workers down.
///
/// A manager may have one Trace at a time. Construct, write and destroy it on any thread, one at a
/// time. A worker that starts later is not profiled, and the records of a worker that dies are
/// lost; the ranges of their callers are kept.
class ISOPOOL_EXPORT Trace {
 public:
  /// Waits until the profiler runs in every worker, which takes about a second the first time.
  /// Throws as a step of a session, and Error if the manager has a Trace already.
  explicit Trace(InterpreterManager& manager);
  /// Stops recording and waits for the workers. Records that were not written are dropped.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Stops recording and writes a Chrome trace (JSON) to `path`, for https://ui.perfetto.dev or
  /// chrome://tracing. Call once. Throws Error if it was called before, if the file can't be
  /// written, and in a forked child.
  void write(const std::string& path);

 private:
  std::unique_ptr<TraceImpl> impl_;
};

}  // namespace isopool
