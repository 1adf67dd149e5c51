// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"

namespace isopool::client {

/// A private supervisor that has just been started.
struct SupervisorProcess {
  base::Fd control;         ///< our end of the control connection
  base::Fd lifeline;        ///< when its last copy closes, the kernel kills the supervisor
  pid_t guardianGroup = 0;  ///< the process group of its guardian; 0: none that we started
};

/// The supervisor's executable: ISOPOOL_SUPERVISOR, else the one that was installed or built with
/// this library. Throws SupervisorLost if there is none.
std::string supervisorPath();

/// Starts a supervisor that serves only this process and dies with it. Afterwards the supervisor is
/// not a child of this process. Safe in a program with threads. Waits until the process that is
/// started first has forked the supervisor and exited; whether the supervisor works shows in its
/// greeting only. Throws SupervisorLost; then no process is left behind.
SupervisorProcess startPrivateSupervisor();

/// Reaps the guardian of a supervisor that has ended if the guardian is a child of this process: so
/// it is if this process is the first one of its container, or a subreaper. Waits for the
/// guardian's end, 5 seconds at most.
void reapGuardian(pid_t guardianGroup);

}  // namespace isopool::client
