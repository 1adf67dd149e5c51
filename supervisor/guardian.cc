// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/guardian.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "ipc/system_call.h"
#include "supervisor/process_table.h"

namespace isopool::supervisor {

namespace {

pid_t waitForOne(pid_t which) {
  pid_t reaped = 0;
  do {
    reaped = ::waitpid(which, nullptr, 0);
  } while (reaped == -1 && errno == EINTR);
  return reaped;
}

// Each kill hands the victim's own children over to us, so this ends when the last is dead.
void killAllDescendants() {
  do {
    for (const pid_t child : childrenOf(::getpid())) ::kill(child, SIGKILL);
  } while (waitForOne(-1) != -1);
}

}  // namespace

void continueUnderGuardian() {
  ipc::checkSystemCall(::prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl(PR_SET_CHILD_SUBREAPER)");
  const pid_t guarded = ipc::checkSystemCall(::fork(), "fork");
  if (guarded == 0) return;
  ::prctl(PR_SET_NAME, "isopoold-guard");
  // Held open here, the user's pipes would never end.
  ::close_range(0, ~0U, 0);
  waitForOne(guarded);
  killAllDescendants();
  ::_exit(0);
}

}  // namespace isopool::supervisor
