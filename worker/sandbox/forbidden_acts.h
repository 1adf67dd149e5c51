// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "ipc/control/worker_messages.h"
#include "worker/sandbox/system_call_filter.h"

/// Counts what user code in this process tried and the sandbox forbade, by name. The state is
/// global and lives as long as the process, because a signal handler changes it.
namespace isopool::worker {

/// Installs the handler of SIGSYS: a forbidden system call is counted and fails with EPERM in
/// the thread that made it. A call that names another thread of this process (threadArgument())
/// is made by the handler instead. To be called before the filter with these options is
/// installed. Throws SystemCallError.
void countForbiddenCalls(const FilterOptions& options);

/// Counts an act that the filter does not see. Beyond a bounded number of distinct names it counts
/// as "other acts". With the GIL.
void countForbiddenAct(const std::string& act);

/// Counts a fork by native code, which may not hold the GIL. Async-signal-safe. Any thread.
void countForbiddenFork() noexcept;

/// True if an act was counted since the last takeForbiddenActs(). Any thread.
bool anyForbiddenActs() noexcept;

/// Returns and resets the counts since the last call. With the GIL.
std::vector<ipc::ForbiddenAct> takeForbiddenActs();

}  // namespace isopool::worker
