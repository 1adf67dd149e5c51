// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <optional>

#include "base/fd.h"

namespace isopool::base {

/// The number of a pidfd's process in this process's /proc. 0 if it is reaped, is in a PID
/// namespace that this /proc does not show, or if this is no pidfd: a number that another process
/// has told may be that of somebody else here. Nothing, and errno, if it can't be looked at: that
/// takes a descriptor, of which this process may have too many.
std::optional<pid_t> processOf(const Fd& pidfd);

}  // namespace isopool::base
