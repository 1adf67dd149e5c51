// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace isopool::supervisor {

/// How a guardian starts a supervisor that takes over the address of another one: a process that
/// runs the program file of the guardian again, which may be a newer one, with its arguments and
/// its environment. A guardian starts it, so that the process that a service manager, a container
/// or a terminal has started stays the same.

/// What the successor gets. `lock` is not valid if the service manager made the socket,
/// `notifications` if there is none.
struct Inheritance {
  base::Fd socket;  ///< listens already: no connection is refused or lost meanwhile
  base::Fd lock;    ///< of the socket's path: the lock of the open file, which all holders share
  base::Fd guardian;
  base::Fd notifications;
  std::string folders;  ///< what reserveWorkerFolders() returned
};

/// Returns what the guardian gave to this process, with close-on-exec descriptors; nothing if no
/// guardian started it as a successor. Removes the variable from the environment, and closes all
/// other descriptors but 0, 1 and 2. Call it first of all. Throws base::SystemCallError.
std::optional<Inheritance> takeInheritance();

/// The program that a guardian runs again.
class SupervisorProgram {
 public:
  /// The file and the arguments of the calling process.
  static SupervisorProgram ofThisProcess();

  /// Starts it in a session of its own, with SIGTERM and SIGHUP blocked. The kernel kills it if the
  /// calling process ends. `streams`: its descriptors 0, 1 and 2. `watchdog`: WATCHDOG_USEC, empty:
  /// none. The calling process must have one thread. Throws base::SystemCallError.
  pid_t start(const std::vector<base::Fd>& streams, const Inheritance& inheritance,
              const std::string& watchdog) const;

 private:
  std::string path_;
  std::vector<std::string> words_;
};

}  // namespace isopool::supervisor
