// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/fd.h"
#include "ipc/channel/layout.h"
#include "ipc/memory/memory_object.h"

namespace isopool::supervisor {

/// A word in shared memory that wakes a worker, which sleeps on its rings, for a control message.
/// One per worker. Only the supervisor has a writable mapping, so a worker can't change the word.
class Doorbell {
 public:
  /// Throws base::SystemCallError (no memory, no free descriptor).
  Doorbell();

  /// Returns a new descriptor of the doorbell's page for the worker, which can map it only
  /// read-only. Throws base::SystemCallError.
  base::Fd descriptor() const { return object_.duplicate(); }
  /// Wakes the worker if it sleeps; call it after the message was sent. Does not wait. No effect if
  /// the worker is dead.
  void ring() noexcept;

 private:
  base::Fd object_;
  ipc::Mapping page_;
  ipc::SharedWord<uint32_t>* word_;
};

}  // namespace isopool::supervisor
