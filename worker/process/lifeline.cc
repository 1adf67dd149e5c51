// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/lifeline.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/lifeline.h"
#include "base/system_call.h"

namespace isopool::worker {

void armLifeline(int readEnd) {
  if (!base::armLifeline(readEnd)) ::kill(-::getpgrp(), SIGKILL);
}

void endWithSupervisor(pid_t forker) {
  constexpr int kMostMilliseconds = 1;  // the poll interval if the kernel has no pidfd_open()
  while (::getppid() == forker) {
    const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, forker, 0)));
    pollfd end{pidfd.get(), POLLIN, 0};
    // Checked again: if `forker` has exited, another process may have its number by now.
    if (::getppid() == forker) ::poll(&end, 1, kMostMilliseconds);
  }
  // If the supervisor died before this line, the lifeline has killed this process: no user code has
  // run yet that could disarm it.
  base::checkSystemCall(::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)");
}

}  // namespace isopool::worker
