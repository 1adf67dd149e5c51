// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

namespace isopool::worker {

/// base::armLifeline() for the read end of a lifeline: the kernel kills this process's group when
/// the supervisor, the only process with the write end, is gone. Kills the group immediately if it
/// is gone already. The setting belongs to the open file description, so each process needs a read
/// end of its own. Throws SystemCallError.
void armLifeline(int readEnd);

/// For a worker whose lifeline is armed: the kernel sends this process SIGKILL when its
/// parent, the supervisor, dies. This holds even if user code closes or disarms the
/// lifeline. Waits until `forker`, which forked this process and is its parent until then,
/// has exited. Throws SystemCallError.
void endWithSupervisor(pid_t forker);

}  // namespace isopool::worker
