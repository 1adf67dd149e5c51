// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <optional>

namespace isopool {

/// How one call is to be made.
struct CallOptions {
  /// From now. When it passes the caller gets DeadlineExceeded at once: a call that has not started
  /// is withdrawn, a running one is abandoned and its worker killed. So is an idle worker that let
  /// calls lie for a second, because it must be stopped. A worker that still loads the object goes
  /// on with that, for the next call. None, or nanoseconds::max(): waits as long as the worker
  /// lives.
  std::optional<std::chrono::nanoseconds> deadline;
  /// The call may run twice: if its worker dies after it started, it runs again elsewhere.
  bool idempotent = false;
  /// The result is converted as Obj::toIValuePermissive() does it.
  bool permissive = false;
};

}  // namespace isopool
