// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/fd.h"
#include "ipc/channel/layout.h"
#include "ipc/memory/memory_object.h"

namespace isopool::supervisor {

/// A word in shared memory that wakes a worker, which sleeps on its rings, for a control message.
/// Only the supervisor has a writable mapping.
class Doorbell {
 public:
  /// Throws base::SystemCallError.
  Doorbell();

  /// Returns a new descriptor of the doorbell's page for the worker, which can map it only
  /// read-only.
  base::Fd descriptor() const { return object_.duplicate(); }
  /// Wakes the worker if it sleeps. Does nothing if the worker is dead.
  void ring() noexcept;

 private:
  base::Fd object_;
  ipc::Mapping page_;
  ipc::SharedWord<uint32_t>* word_;
};

}  // namespace isopool::supervisor
