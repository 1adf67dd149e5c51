// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "supervisor/processes/notification_relay.h"
#include "supervisor/processes/zygote_process.h"

namespace isopool::supervisor {

/// Closes descriptors that the parent process left open by mistake: all but 0, 1, 2 and `kept`.
/// Makes `kept` close-on-exec. If one of 0, 1, 2 is closed, opens /dev/null there. Call it first of
/// all, before this process opens descriptors of its own. Throws base::SystemCallError.
void closeInheritedDescriptors(const std::vector<int>& kept);

/// Detaches a private supervisor from the program that started it. The calling process exits with
/// code 0, and the program reaps it. The function returns in the supervisor: under a guardian, in a
/// session of its own, with default signals (except that those without a meaning here, like
/// SIGPIPE, are ignored), as the parent of orphaned descendants (subreaper). The calling process
/// must have one thread. Returns the limits that children shall get back. The guardian removes
/// `folders` in the end. Throws base::SystemCallError.
InheritedLimits detach(const std::string& folders = {});

/// The same for a shared supervisor, which stays in the foreground: the calling process becomes the
/// guardian (see continueUnderForegroundGuardian()), and the function returns in the supervisor.
/// The guardian closes its copies of all descriptors, and forwards `relay`. SIGTERM and SIGHUP stay
/// blocked.
struct Detached {
  InheritedLimits limits;
  base::Fd guardian;  ///< what continueUnderForegroundGuardian() returned
};
Detached detachStandalone(const std::string& folders = {},
                          std::optional<NotificationRelay> relay = {});
/// The same for a successor (succession.h), which has a guardian already.
InheritedLimits detachSuccessor();

}  // namespace isopool::supervisor
