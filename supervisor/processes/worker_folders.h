// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "base/fd.h"
#include "base/ids.h"

namespace isopool::supervisor {

/// The variable by which a zygote learns where the folders are; empty if there are none.
inline constexpr const char* kWorkerFoldersVariable = "ISOPOOL_WORKER_FOLDERS";

/// Where a supervisor may have a folder of its own below the system's one for temporary files, in
/// which workers make theirs if they need one and the kernel gives them none in memory. A path that
/// nobody has.
std::string reserveWorkerFolders();

/// That folder (0700). The supervisor removes a worker's, which has its epoch's number for a name,
/// when the worker is reaped, and the guardian all that is left when the supervisor has ended.
class WorkerFolders {
 public:
  /// Makes it, and removes those of supervisors that are gone with their guardians. Throws
  /// SystemCallError.
  explicit WorkerFolders(const std::string& path);

 private:
  base::Fd lock_;  ///< held as long as we, or a process that was forked from us, may use the folder
};

/// Removes what a worker that was reaped has left, without waiting for it: its folder, if it has
/// one, and the named objects of its Python code (ipc/named_objects.h). `folders` empty: nothing.
void removeLeftoversSoon(const std::string& folders, base::Epoch worker) noexcept;
/// The same for all workers of a supervisor; returns when it is done.
void removeLeftovers(const std::string& folders) noexcept;

/// Removes the folder and what is in it, whatever user code made of it; follows no links. What
/// can't be removed stays.
void removeTree(const std::string& path) noexcept;

}  // namespace isopool::supervisor
