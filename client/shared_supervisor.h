// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "ipc/control/frame.h"

namespace isopool::client {

/// The address of the shared supervisor that managers without one of their own attach to:
/// ISOPOOL_SOCKET; empty if they start private ones.
std::string sharedSupervisorAddress();

/// Connects to the supervisor that listens at `address`, the path of a Unix socket. Throws
/// SupervisorLost with what to do.
ipc::ControlSocket connectToSupervisor(const std::string& address);

}  // namespace isopool::client
