// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <vector>

#include "supervisor/processes/processes.h"

/// Orphans are processes that user code in a worker started, and that became the supervisor's
/// children because their parent ended: daemons, and processes of a dead worker in other sessions.
/// `own` lists the supervisor's own children, which these functions do not touch.
namespace isopool::supervisor {

/// Reaps dead orphans. Returns early if it finds a dead process of `own`, which its owner reaps.
void reapOrphans(Processes& processes, const std::vector<pid_t>& own);

/// Kills orphans that are not in the process group of one of `own`. Returns how many.
size_t killOrphans(Processes& processes, const std::vector<pid_t>& own);

}  // namespace isopool::supervisor
