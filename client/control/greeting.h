// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stop_token>
#include <string>

#include "base/fd.h"
#include "client/control/pool_settings.h"
#include "client/transport/control_writer.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"

namespace isopool::client {

/// What a supervisor has answered to this process's first message.
struct Greeting {
  ipc::Welcome welcome;
  base::Fd supervisor;  ///< a pidfd; invalid if the supervisor has sent none
};

/// Introduces this process to the supervisor at the other end of `socket` and waits until the
/// supervisor can provide workers: three minutes at most, because Python has to start, and without
/// limit if `settings.noKill`. Call it before another thread reads from the socket. `place`: the
/// supervisor in messages, its program's path or its address. `stop` ends the wait. Throws
/// SupervisorLost with the reason, and base::SystemCallError.
Greeting greetSupervisor(ipc::ControlSocket& socket, ControlWriter& writer,
                         const std::string& place, const PoolSettings& settings,
                         const std::stop_token& stop = {});

}  // namespace isopool::client
