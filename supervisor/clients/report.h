// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/control/messages.h"
#include "supervisor/pool/services.h"
#include "supervisor/pool/worker_group.h"

namespace isopool::supervisor {

/// Adds the group's workers and slots to a report. Reads counters that workers write, by pread.
void reportGroup(WorkerGroup& group, const Services& services, ipc::Report& report);

/// Leaves out what a message has no room for, longest lists first, and says so in `complete`.
void makeFit(ipc::Report& report);

}  // namespace isopool::supervisor
