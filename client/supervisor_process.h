// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "ipc/fd.h"

namespace isopool::client {

/// A private supervisor that has just been started.
struct SupervisorProcess {
  ipc::Fd control;   ///< our end of the control connection
  ipc::Fd lifeline;  ///< when its last copy closes, the kernel kills the supervisor
};

/// The supervisor's executable: ISOPOOL_SUPERVISOR, else the one that was installed or built with
/// this library. Throws SupervisorLost if there is none.
std::string supervisorPath();

/// Starts a supervisor that serves this process alone and dies with it. It is not a child of this
/// process afterwards. Safe in a program with threads. Throws SupervisorLost.
SupervisorProcess startPrivateSupervisor();

}  // namespace isopool::client
