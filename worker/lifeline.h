// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

namespace isopool::worker {

/// Ties this process's group to the holder of a pipe's only write end: when that end is closed, by
/// whatever death, the kernel sends SIGKILL to the whole group, stopped processes included. If it is
/// closed already, this call kills the group. `pipe` is the read end and stays open; the setting
/// belongs to the open file, so no other process may use the same one. Throws SystemCallError.
void armLifeline(int pipe);

/// For a worker whose lifeline is armed: the kernel sends it SIGKILL when the supervisor, its parent,
/// dies, also if user code closes the lifeline or makes it raise no signal. Waits for the end of
/// `forker`, which forked this process and is its parent until then. Throws SystemCallError.
void endWithSupervisor(pid_t forker);

}  // namespace isopool::worker
