// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "ipc/control/messages.h"
#include "worker/sandbox/system_call_filter.h"

/// What user code in this process tried and the sandbox forbade, by name and number. The counts are
/// this process's for its life, because a signal handler makes them.
namespace isopool::worker {

/// From here on a forbidden system call is counted, and fails with EPERM for whoever makes it; one
/// that names another thread of this process (threadArgument()) is made instead. Before the filter
/// with these options is installed. Throws SystemCallError.
void countForbiddenCalls(const FilterOptions& options);

/// Counts an act that is no system call of the filter's. Beyond a bounded number of distinct names
/// it counts as "other acts". With the GIL.
void countForbiddenAct(const std::string& act);

/// The same for a fork of native code, which has no GIL. Async-signal-safe.
void countForbiddenFork() noexcept;

/// True if something was counted since takeForbiddenActs().
bool anyForbiddenActs() noexcept;

/// What was counted since the last time. With the GIL.
std::vector<ipc::ForbiddenAct> takeForbiddenActs();

}  // namespace isopool::worker
