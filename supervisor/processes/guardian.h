// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

#include "base/fd.h"
#include "supervisor/processes/notification_relay.h"

namespace isopool::supervisor {

/// Forks the calling process, which must have one thread. Returns in the child; the parent becomes
/// the child's guardian. When the child has died, however it died, all its descendants become the
/// guardian's children. The guardian kills them until none is left, removes what workers have left
/// in `folders` and by name (worker_folders.h) unless that is empty, and ends.
///
/// Lifelines already kill the process groups of workers and zygote. The guardian also kills
/// processes that user code started in sessions of their own, which no signal to a group reaches.
/// Throws base::SystemCallError.
void continueUnderGuardian(const std::string& folders);

/// The same for a supervisor that stays in the foreground: the guardian is the process that was
/// started. It passes on SIGTERM and SIGINT (as SIGTERM), SIGHUP, SIGQUIT and SIGABRT, and exits
/// with the child's exit code, or with 128 and the number of the signal that killed the child. If
/// a terminal hangs up, it passes on the SIGHUP as SIGTERM. If the guardian is killed, the kernel
/// kills the child.
///
/// The child has a session of its own. SIGTERM and SIGHUP are blocked in it until
/// EventLoop::onSignals(), so that a signal that arrives before there is a handler is not lost.
///
/// The guardian forwards `relay`, if there is one, and reaps all its children: in a container it
/// may be process 1, to which the kernel gives orphans that the supervisor has never had.
///
/// Returns the supervisor's end of a control connection to the guardian, by which it may ask for a
/// successor (GuardianLink). When the successor serves, it takes the place of the supervisor above,
/// which ends without an effect on the guardian. The guardian passes on signals to both. If the
/// supervisor ends while its successor starts, the successor takes its place at once.
base::Fd continueUnderForegroundGuardian(const std::string& folders,
                                         std::optional<NotificationRelay> relay);

}  // namespace isopool::supervisor
