// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace isopool::worker {

/// Gives the memory and the descriptors back that dropped packages, objects and clients leave in
/// reference cycles: a full collection of Python's garbage, after which the C library returns its
/// free pages to the system. Runs when the worker has had no call for a few milliseconds, or
/// between two calls when that does not happen soon. The call loop's thread, with the GIL.
class IdleCollection {
 public:
  /// Something was dropped that may be part of a cycle.
  void request() noexcept;
  bool requested() const noexcept { return requestedAt_.has_value(); }

  /// How long a worker that has had nothing to do since `idleSince` (monotonicNow()) sleeps before
  /// it collects; nothing if nothing is requested.
  std::optional<std::chrono::nanoseconds> idleTime(int64_t idleSince) const noexcept;
  /// The worker has not been idle for so long that it collects now.
  bool overdue() const noexcept;

  void run();

 private:
  std::optional<int64_t> requestedAt_;
  int64_t notBefore_ = 0;
};

}  // namespace isopool::worker
