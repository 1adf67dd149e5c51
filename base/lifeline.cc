// SPDX-License-Identifier: BSD-3-Clause
#include "base/lifeline.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "base/system_call.h"

namespace isopool::base {

Lifeline Lifeline::make(Fd& readEnd) {
  int ends[2];
  checkSystemCall(::pipe2(ends, O_CLOEXEC), "pipe2");
  readEnd = Fd(ends[0]);
  Lifeline lifeline;
  lifeline.writeEnd_ = Fd(ends[1]);
  return lifeline;
}

bool armLifeline(int readEnd) {
  checkSystemCall(::fcntl(readEnd, F_SETSIG, SIGKILL), "fcntl(F_SETSIG)", readEnd);
  checkSystemCall(::fcntl(readEnd, F_SETOWN, -::getpgrp()), "fcntl(F_SETOWN)", readEnd);
  const int flags = checkSystemCall(::fcntl(readEnd, F_GETFL), "fcntl(F_GETFL)", readEnd);
  checkSystemCall(::fcntl(readEnd, F_SETFL, flags | O_ASYNC | O_NONBLOCK), "fcntl(F_SETFL)",
                  readEnd);
  // The write end may have closed before O_ASYNC was set: then the kernel sends no signal.
  pollfd end{readEnd, POLLIN, 0};
  return ::poll(&end, 1, 0) == 0;
}

}  // namespace isopool::base
