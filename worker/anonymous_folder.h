// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/fd.h"

namespace isopool::worker {

/// A new empty folder in memory to which no name leads: files in it are reached through
/// /proc/self/fd/N/NAME, and it is gone with its descriptor, however the process ends. Invalid if the
/// system lets this user have none: it takes a user namespace, which some forbid.
ipc::Fd makeAnonymousFolder();

}  // namespace isopool::worker
