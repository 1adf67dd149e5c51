// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <vector>

#include "supervisor/processes/processes.h"

/// Processes that user code in a worker started, and that became the supervisor's children because
/// their parent ended: daemons, and what a dead worker left in sessions of its own. The caller
/// names its own children, of which none is touched.
namespace isopool::supervisor {

/// Reaps orphans that are dead.
void reapOrphans(Processes& processes, const std::vector<pid_t>& own);

/// Kills orphans that live and are not in the process group of one of `own`. Returns how many.
size_t killOrphans(Processes& processes, const std::vector<pid_t>& own);

}  // namespace isopool::supervisor
