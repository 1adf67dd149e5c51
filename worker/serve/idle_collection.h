// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace isopool::worker {

/// Frees the memory and descriptors that dropped packages, objects and clients leave in reference
/// cycles: a full collection of Python's garbage, after which the C library returns its free pages
/// to the system. The caller runs it when the worker has had no call for 10 ms, or between two
/// calls if half a second passes without such a pause. The call loop's thread, with the GIL.
class IdleCollection {
 public:
  /// To be called when an object was dropped that may be part of a cycle.
  void request() noexcept;
  bool requested() const noexcept { return requestedAt_.has_value(); }

  /// How long a worker that is idle since `idleSince` (monotonicNow()) is to sleep before it
  /// collects; nullopt if no collection is requested.
  std::optional<std::chrono::nanoseconds> idleTime(int64_t idleSince) const noexcept;
  /// True if the request is so old that the worker is to collect between two calls.
  bool overdue() const noexcept;
  /// How long a caller that can wait is to wait with run(): zero unless collections took more than
  /// a tenth of the worker's time. At most half a second.
  std::chrono::nanoseconds untilRested() const noexcept;

  void run();

 private:
  std::optional<int64_t> requestedAt_;
  int64_t notBefore_ = 0;
};

}  // namespace isopool::worker
