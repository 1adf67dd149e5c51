// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

namespace isopool::worker {

/// base::armLifeline(), which kills this process's group at once if the supervisor is gone already.
/// The setting belongs to the open file, so no other process may use the same one. Throws
/// SystemCallError.
void armLifeline(int readEnd);

/// For a worker whose lifeline is armed: the kernel sends it SIGKILL when the supervisor, its
/// parent, dies, also if user code closes the lifeline or makes it raise no signal. Waits for the
/// end of `forker`, which forked this process and is its parent until then. Throws SystemCallError.
void endWithSupervisor(pid_t forker);

}  // namespace isopool::worker
