// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <vector>

#include "supervisor/processes/processes.h"

/// Orphans are processes that user code in a worker started, and that became the supervisor's
/// children because their parent ended: daemons, and processes of a dead worker in other sessions.
/// `own` lists the supervisor's own children, which these functions do not touch.
namespace isopool::supervisor {

/// Reaps dead orphans. Returns early if it finds a dead process of `own`, which its owner reaps:
/// call it again then.
void reapOrphans(Processes& processes, const std::vector<pid_t>& own);

/// Kills orphans that are not in the process group of one of `own`. Returns how many. Their
/// children become this process's: call it again until it returns 0. `own` must be complete: a
/// forked worker that is missing there would be killed.
size_t killOrphans(Processes& processes, const std::vector<pid_t>& own);

}  // namespace isopool::supervisor
