// SPDX-License-Identifier: BSD-3-Clause
#include "worker/lifeline.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "ipc/system_call.h"

namespace isopool::worker {

void armLifeline(int pipe) {
  using ipc::checkSystemCall;
  checkSystemCall(::fcntl(pipe, F_SETSIG, SIGKILL), "fcntl(F_SETSIG)", pipe);
  checkSystemCall(::fcntl(pipe, F_SETOWN, -::getpgrp()), "fcntl(F_SETOWN)", pipe);
  const int flags = checkSystemCall(::fcntl(pipe, F_GETFL), "fcntl(F_GETFL)", pipe);
  checkSystemCall(::fcntl(pipe, F_SETFL, flags | O_ASYNC | O_NONBLOCK), "fcntl(F_SETFL)", pipe);
  // Closed before it was armed: no signal will come.
  pollfd end{pipe, POLLIN, 0};
  if (::poll(&end, 1, 0) > 0) ::kill(-::getpgrp(), SIGKILL);
}

}  // namespace isopool::worker
