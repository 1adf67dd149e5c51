// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/migration.h"

#include "client/transport/worker_link.h"

namespace isopool::client {

void Migration::wake(WorkerLink& channel, PendingRequest& request) { channel.wakeWaiter(request); }

}  // namespace isopool::client
