// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/fd.h"

namespace isopool::client {

/// A private supervisor that has just been started.
struct SupervisorProcess {
  base::Fd control;         ///< our end of the control connection
  base::Fd lifeline;        ///< when its last copy closes, the kernel kills the supervisor
  pid_t guardianGroup = 0;  ///< the process group of its guardian; 0: none that we started
  base::Fd log;             ///< see SupervisorLog; invalid: it has this program's standard streams
};

/// The supervisor's executable: `chosen` (ISOPOOL_SUPERVISOR or PoolOptions), or, if that is empty,
/// the one that was installed or built with this library. Throws SupervisorLost if there is none.
std::string supervisorPath(const std::string& chosen);

/// How long the start of a supervisor may take that takes milliseconds on an idle machine.
inline constexpr std::chrono::milliseconds kForkPatience(60'000);

/// Starts `program` as a supervisor that serves only this process and dies with it. `defaults`:
/// KEY=VALUE for its --default. `environment`: NAME=VALUE each, all that it gets. `collectOutput`:
/// its log, and the output of its processes, go to SupervisorProcess::log. Afterwards the
/// supervisor is not a child of this process. Safe in a program with threads. Waits until the
/// process that is started first has forked the supervisor and exited; after `patience` kills it.
/// Whether the supervisor works shows in its greeting only. Throws SupervisorLost; then no process
/// is left behind.
SupervisorProcess startPrivateSupervisor(const std::string& program,
                                         const std::vector<std::string>& defaults,
                                         std::vector<std::string> environment,
                                         bool collectOutput = false,
                                         std::chrono::milliseconds patience = kForkPatience);

/// What keeps this thread from starting supervisors, if this is known; else empty. For the text of
/// a failure.
std::string obstacleToStarts();

/// Reaps the guardian of a supervisor that has ended if the guardian is a child of this process: so
/// it is if this process is the first one of its container, or a subreaper. Waits for the
/// guardian's end, 5 seconds at most.
void reapGuardian(pid_t guardianGroup);

}  // namespace isopool::client
