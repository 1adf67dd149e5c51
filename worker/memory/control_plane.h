// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ipc/control/worker_messages.h"
#include "worker/memory/output_blocks.h"

namespace isopool::worker {

/// What a running call may request from the supervisor. The call loop's thread, with the GIL held.
class ControlPlane : public SegmentRequester {
 public:
  /// Waits until at least one message of the supervisor has arrived, and handles all that have.
  /// Returns false if none arrives before `deadline` (monotonicNow(), ns). Releases the GIL while
  /// it waits. A message that detaches a channel only marks it. Does not return if the supervisor
  /// is gone: the process exits.
  virtual bool waitForMessage(int64_t deadline) = 0;
  /// Reports a forbidden act to the supervisor. Never waits; false if the socket has no room now:
  /// the caller keeps the act.
  virtual bool tell(const ipc::ForbiddenAct& act) = 0;
  /// To be called when the last reference to an object of a dropped package may be gone: garbage is
  /// collected when the worker is idle, see IdleCollection. Returns at once.
  virtual void requestCollection() noexcept = 0;
};

}  // namespace isopool::worker
