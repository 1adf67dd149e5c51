// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/fd.h"

namespace isopool::worker {

/// A new empty folder in memory, of 64 MiB at most, to which no name leads: files in it are reached through
/// /proc/self/fd/N/NAME, and it is gone with its descriptor, however the process ends. Invalid if the
/// system lets this user have none: it takes a user namespace, which some forbid.
ipc::Fd makeAnonymousFolder();

/// Makes the one that takeAnonymousFolder() gives out, for a process that will not be able to make any.
/// Returns its descriptor, or -1.
int keepAnonymousFolder();

/// The kept one, which need not be empty, where one was to be kept, or else a new one.
ipc::Fd takeAnonymousFolder();

}  // namespace isopool::worker
