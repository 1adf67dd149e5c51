// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/system_call.h"

namespace isopool::base {

/// From now on the kernel kills this process when the thread that forked it ends, see
/// PR_SET_PDEATHSIG in prctl(2). `parent`: getpid() before the fork, in this process's PID
/// namespace. The kernel sends no signal for a parent that has ended before this call: the process
/// then ends here.
inline void endWithParent(pid_t parent) {
  checkSystemCall(::prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl(PR_SET_PDEATHSIG)");
  if (::getppid() != parent) ::_exit(128 + SIGKILL);
}

}  // namespace isopool::base
