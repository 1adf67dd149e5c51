// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <optional>

namespace isopool {

/// Options of one call of a ReplicatedObj. A plain value.
struct CallOptions {
  /// The time that the call may take, counted from the moment when it is made. When this time has
  /// passed the caller gets DeadlineExceeded at once, and:
  ///   - a call that has not started is withdrawn and will not run;
  ///   - a call that runs is abandoned, and its worker is killed. A shared supervisor kills the
  ///     worker only if the call still runs after the grace period;
  ///   - a worker that still loads the object continues: the next call needs the object, too;
  ///   - an idle worker that does not pick up a queued call within 1 s is assumed to be stopped and
  ///     is killed.
  /// Zero or less: the deadline has passed already. None, or a value too large for the clock: no
  /// deadline, the call waits as long as its worker lives. ISOPOOL_NO_KILL=1, for debuggers, turns
  /// all deadlines off.
  std::optional<std::chrono::nanoseconds> deadline;
  /// The call may run more than once. If its worker dies after the call has started, the call runs
  /// again on another worker; without this option the caller gets WorkerLost.
  bool idempotent = false;
  /// Converts the result as Obj::toIValuePermissive() does; without this option as toIValue() does.
  bool permissive = false;
};

}  // namespace isopool
