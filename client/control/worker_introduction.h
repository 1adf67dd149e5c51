// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>

#include "client/transport/worker_link.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"

namespace isopool::client {

/// The link to a worker that the supervisor introduces: maps the channel's memory from the frame's
/// descriptors and seals this process's control segment, so that no other process can write to it.
/// For the control thread. `livenessWordWorks` and `connection`: see WorkerLink. Throws
/// ipc::ProtocolError if the descriptors are not such memory, base::SystemCallError and
/// std::bad_alloc.
std::shared_ptr<WorkerLink> linkTo(const ipc::IntroduceWorker& worker, ipc::Frame& frame,
                                   bool livenessWordWorks, uint64_t connection);

}  // namespace isopool::client
