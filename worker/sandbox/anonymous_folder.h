// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "base/fd.h"

namespace isopool::worker {

/// A new empty folder in memory, of 64 MiB at most, to which no name leads: files in it are reached
/// through /proc/self/fd/N/NAME, and it is gone with its descriptor, however the process ends.
/// Invalid if the system lets this user have none: it takes a user namespace, which some forbid.
base::Fd makeAnonymousFolder();

/// Makes the one that takeAnonymousFolder() gives out, for a process that will not be able to make
/// any. Returns its descriptor, or -1.
int keepAnonymousFolder();

/// Where the system lets this user have none: the one of this path instead, made when it is taken.
/// Whoever calls this sees to it that somebody removes it.
void offerFolder(const std::string& path);
/// Makes it now, for takeAnonymousFolder() to give out. Returns its descriptor, or -1.
int keepOfferedFolder();

/// The kept one, where one was to be kept, or else a new one, or the one that was offered. Only a
/// new one must be empty.
base::Fd takeAnonymousFolder();

}  // namespace isopool::worker
