// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ipc/control/messages.h"
#include "worker/memory/output_blocks.h"

namespace isopool::worker {

/// The supervisor as a running call may need it. The call loop's thread, with the GIL held.
class ControlPlane : public SegmentRequester {
 public:
  /// Waits until at least one message came, and obeys those that did; false if none came before
  /// `deadline` (monotonicNow()). The GIL is released meanwhile. A channel that is detached by one
  /// is only marked. Does not return if the supervisor is gone.
  virtual bool waitForMessage(int64_t deadline) = 0;
  /// Never waits; false if the supervisor's socket has no room now.
  virtual bool tell(const ipc::ForbiddenAct& act) = 0;
  /// The last reference to something of a dropped package may have gone: see IdleCollection.
  virtual void requestCollection() noexcept = 0;
};

}  // namespace isopool::worker
