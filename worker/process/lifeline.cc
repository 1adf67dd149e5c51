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
  constexpr int kMostMilliseconds = 1;  // where there is no pidfd
  while (::getppid() == forker) {
    const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, forker, 0)));
    pollfd end{pidfd.get(), POLLIN, 0};
    // If it has ended, its number may be another's by now.
    if (::getppid() == forker) ::poll(&end, 1, kMostMilliseconds);
  }
  // The lifeline ends a worker whose supervisor died before: no user code has run yet.
  base::checkSystemCall(::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)");
}

}  // namespace isopool::worker
