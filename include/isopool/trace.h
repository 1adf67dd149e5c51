// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

namespace isopool {

class InterpreterManager;
class TraceImpl;

/// Records what a manager's callers and workers do, on one time line. As long as it lives, every
/// call is noted with its thread, and torch.profiler runs in each worker, with a range around each
/// call; an arrow leads from the caller's range to the worker's. For seconds or minutes: everything
/// is kept in memory, and profiled workers are slower.
///
/// One trace of a manager at a time; any thread. The constructor waits until the profiler runs in
/// every worker (about a second the first time) and throws as calls do. A worker that starts later
/// is not profiled, what one that died had recorded is lost; their callers' ranges are there.
class Trace {
 public:
  explicit Trace(InterpreterManager& manager);
  /// Ends recording; what was not written is dropped.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Ends recording and writes a Chrome trace (JSON) for https://ui.perfetto.dev or
  /// chrome://tracing. Once. Throws Error if the file can't be written.
  void write(const std::string& path);

 private:
  std::unique_ptr<TraceImpl> impl_;
};

}  // namespace isopool
