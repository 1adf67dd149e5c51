// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/control/supervisor_connection.h"

namespace isopool::client {

/// The connection to the private supervisor of workers with these folders on sys.path, in the
/// present environment (working folder and environment variables) and for the environment object
/// `identity`. Managers that agree in all of these share it. Starts a supervisor if there is none,
/// and waits until its Python runs; calls for the same workers wait meanwhile, others do not. Any
/// thread. Throws what SupervisorConnection::open() throws, and SupervisorLost if no supervisor can
/// be started.
std::shared_ptr<SupervisorConnection> privateConnection(const std::vector<std::string>& pythonPaths,
                                                        const std::string& identity,
                                                        SpareWorker spare);

/// A new connection to the shared supervisor at `address`. Any thread. Throws what
/// SupervisorConnection::open() throws, and SupervisorLost if the address can't be reached.
std::shared_ptr<SupervisorConnection> sharedConnection(const std::vector<std::string>& pythonPaths,
                                                       const std::string& address,
                                                       SpareWorker spare);

}  // namespace isopool::client
