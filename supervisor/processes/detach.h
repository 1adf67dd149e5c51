// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "supervisor/processes/zygote_process.h"

namespace isopool::supervisor {

/// Closes what the program that started us left open by accident: everything but 0, 1, 2 and
/// `kept`, which become close-on-exec. Opens /dev/null where one of 0, 1, 2 is closed.
void closeInheritedDescriptors(const std::vector<int>& kept);

/// Leaves the program that started us: the calling process ends with code 0 and is that program's
/// to reap; this returns in the supervisor, in a session of its own, under a guardian, with default
/// signals (SIGPIPE ignored), as the one to whom orphaned descendants fall. One thread only.
/// Returns what children shall have as it was. The guardian removes `folders` in the end. Throws
/// base::SystemCallError.
InheritedLimits detach(const std::string& folders = {});

/// The same for a supervisor that whoever started it shall see in the foreground: the calling
/// process becomes the guardian (continueUnderForegroundGuardian() says what it does), and this
/// returns in the supervisor. Descriptors that the supervisor holds are closed in the guardian.
/// SIGTERM and SIGHUP are blocked until EventLoop::onSignals().
InheritedLimits detachStandalone(const std::string& folders = {});

}  // namespace isopool::supervisor
