// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <optional>

#include "base/fd.h"

namespace isopool::base {

/// The process id of a pidfd's process in this process's /proc. 0 if the process is reaped, if it
/// is in a PID namespace that this /proc does not show, or if `pidfd` is not a pidfd. A process id
/// that another process sends is not a substitute: in this namespace it may be that of another
/// process. std::nullopt, with errno set, if /proc/self/fdinfo can't be read: that takes a
/// descriptor, and this process may have no free one.
std::optional<pid_t> processOf(const Fd& pidfd);

/// True if `pidfd` is that of a process that has ended and is reaped: no process has its number any
/// more. False if /proc/self/fdinfo can't be read.
bool isReaped(const Fd& pidfd);

}  // namespace isopool::base
