// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace isopool::supervisor {

/// Splits the calling process, which must have one thread: returns in a child, and stays behind as
/// its guardian. When that child is dead, however it died, everything that descends from it becomes
/// the guardian's, who kills it until nothing is left, and then ends.
///
/// Then it removes what workers have left in `folders` and by name (worker_folders.h), unless that
/// is empty.
///
/// Lifelines already kill the process groups of workers and zygote. The guardian is for what user
/// code started in sessions of its own, which no signal to a group reaches.
void continueUnderGuardian(const std::string& folders);

/// The same for a supervisor that stays in the foreground: the guardian is the process that was
/// started. It passes SIGTERM and SIGINT (as SIGTERM), SIGHUP, SIGQUIT and SIGABRT on, and ends
/// with the child's exit code, or 128 and the signal that killed it. If a terminal hangs up, its
/// SIGHUP is passed on as SIGTERM. Should the guardian be killed, the kernel kills the child.
///
/// In the child, in a session of its own, SIGTERM and SIGHUP are blocked, so that one that comes
/// before there is a handler is not lost. EventLoop::onSignals() admits them.
void continueUnderForegroundGuardian(const std::string& folders);

}  // namespace isopool::supervisor
