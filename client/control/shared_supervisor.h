// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "ipc/control/frame.h"

namespace isopool::client {

/// Connects to the supervisor that listens at `address`, the path of a Unix socket. Does not block:
/// if the supervisor's queue of connections is full, that is an error. Sends nothing. Throws
/// SupervisorLost, whose text names the remedy.
ipc::ControlSocket connectToSupervisor(const std::string& address);

}  // namespace isopool::client
