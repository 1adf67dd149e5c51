// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "client/control/pool_settings.h"
#include "client/control/supervisor_connection.h"

namespace isopool::client {

/// The connection to the private supervisor of workers with these settings, in the present
/// environment (working folder and environment variables) and for the environment object
/// `identity`. Managers that agree in all of these share it. Starts a supervisor if there is none,
/// and waits until its Python runs; calls for the same workers wait meanwhile, others do not. Any
/// thread. `log`: see SupervisorConnection::open(). Throws what that throws, and SupervisorLost if
/// no supervisor can be started.
std::shared_ptr<SupervisorConnection> privateConnection(const PoolSettings& settings,
                                                        const std::string& identity,
                                                        SpareWorker spare, const EventLog& log);

/// A new connection to the shared supervisor at `settings.address`. `stop` ends the wait for a
/// supervisor that is not ready yet. Any thread. Throws what SupervisorConnection::open() throws,
/// and SupervisorLost if the address can't be reached.
std::shared_ptr<SupervisorConnection> sharedConnection(const PoolSettings& settings,
                                                       SpareWorker spare, const EventLog& log,
                                                       const std::stop_token& stop = {});

}  // namespace isopool::client
