// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/control/operator_messages.h"
#include "supervisor/pool/services.h"
#include "supervisor/pool/worker_group.h"

namespace isopool::supervisor {

/// Adds the group's workers and slots to a report, whose zygoteProcessId is set already. Reads
/// counters that workers write, by pread(): they are not trustworthy. Reads /proc for each worker,
/// so that its time grows with their number.
void reportGroup(WorkerGroup& group, const Services& services, ipc::Report& report);

/// Shortens the lists of a report, the longest first, until it fits into a message. Sets `complete`
/// to false if it removes something; the sums in the report stay those of everything.
void makeFit(ipc::Report& report);

/// Shortens the list until it fits into a message.
void makeFit(ipc::SettingsInForce& settings);

}  // namespace isopool::supervisor
