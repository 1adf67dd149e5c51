// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>

#include "ipc/fd.h"

namespace isopool::supervisor {

/// What the supervisor changed for itself and its children shall have as it was.
struct InheritedLimits {
  rlimit openFiles{};
  std::string oomScoreAdjustment;  ///< empty: unknown, leave it
};

/// Starts `executable --zygote` in a process group of its own, with default signals, one thread per
/// math library, the error stream and the like as ours, and no descriptors but its two. Throws
/// ipc::SystemCallError.
pid_t spawnZygote(const std::string& executable, const ipc::Fd& control, const ipc::Fd& lifeline,
                  const InheritedLimits& limits);

}  // namespace isopool::supervisor
