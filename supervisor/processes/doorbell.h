// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/fd.h"
#include "ipc/channel/layout.h"
#include "ipc/memory/memory_object.h"

namespace isopool::supervisor {

/// Wakes a worker that sleeps on its rings, because a control message came for it. The supervisor
/// holds the only writable mapping.
class Doorbell {
 public:
  /// Throws base::SystemCallError.
  Doorbell();

  /// A new descriptor of the doorbell's page, for the worker, which can map it only for reading.
  base::Fd descriptor() const { return object_.duplicate(); }
  void ring() noexcept;

 private:
  base::Fd object_;
  ipc::Mapping page_;
  ipc::SharedWord<uint32_t>* word_;
};

}  // namespace isopool::supervisor
