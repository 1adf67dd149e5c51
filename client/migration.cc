// SPDX-License-Identifier: BSD-3-Clause
#include "client/migration.h"

#include "client/worker_link.h"

namespace isopool::client {

void Migration::wake(WorkerLink& channel, PendingRequest& request) { channel.wakeWaiter(request); }

}  // namespace isopool::client
