// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "base/fd.h"

namespace isopool::worker {

/// Makes an empty folder in memory (a tmpfs of at most 64 MiB) that is mounted nowhere: files in it
/// are reached through /proc/self/fd/N/NAME. The kernel removes it when the last descriptor of it
/// is closed, however the process ends. Returns an invalid descriptor if the system forbids user
/// namespaces to this user, or on any other error. The functions of this file are for one thread.
base::Fd makeAnonymousFolder();

/// Makes the folder that takeAnonymousFolder() returns later, for a process that will not be able
/// to make one then. Returns its descriptor, which stays open, or -1.
int keepAnonymousFolder();

/// Sets the path of a folder on disk for systems that allow no folder in memory. It is created
/// when it is taken. The caller is responsible for its removal: a worker's folder is removed by
/// the supervisor (supervisor/processes/worker_folders.h).
void offerFolder(const std::string& path);
/// Creates that folder now; takeAnonymousFolder() returns it later. Returns its descriptor, or -1.
int keepOfferedFolder();

/// Returns a new descriptor of the kept folder, if one was to be kept; otherwise of a new folder
/// in memory, or else of the offered folder. Invalid if there is none. Only a new folder is sure
/// to be empty.
base::Fd takeAnonymousFolder();

}  // namespace isopool::worker
