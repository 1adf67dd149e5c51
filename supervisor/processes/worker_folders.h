// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "base/fd.h"
#include "base/ids.h"

namespace isopool::supervisor {

/// The variable that gives a zygote the path of the folders; empty if there are none.
inline constexpr const char* kWorkerFoldersVariable = "ISOPOOL_WORKER_FOLDERS";

/// Returns an unused path in the system's folder for temporary files (TMPDIR, else /tmp), at which
/// a supervisor may make a folder. Workers make their folders in it if they need one and the kernel
/// can't give them one in memory.
std::string reserveWorkerFolders();

/// That folder (mode 0700). A worker's folder in it has the number of the worker's epoch as its
/// name. The supervisor removes a worker's folder when the worker is reaped, and the guardian
/// removes everything when the supervisor has ended. The destructor removes nothing.
class WorkerFolders {
 public:
  /// Makes the folder, and removes those of supervisors that have ended together with their
  /// guardians, in the calling thread. `path`: what reserveWorkerFolders() returned. Throws
  /// base::SystemCallError.
  explicit WorkerFolders(const std::string& path);

 private:
  base::Fd lock_;  ///< held while this process, or one forked from it, may use the folder
};

/// Removes, in a thread of its own, what a reaped worker has left: its folder, if it has one, and
/// the named objects of its Python code (ipc/named_objects.h). Best effort. Does nothing if
/// `folders` is empty.
void removeLeftoversSoon(const std::string& folders, base::Epoch worker) noexcept;
/// The same for all workers of a supervisor, in the calling thread.
void removeLeftovers(const std::string& folders) noexcept;

/// Removes the folder and its contents, also after user code has changed permissions. Follows no
/// links. Best effort: ignores errors.
void removeTree(const std::string& path) noexcept;

}  // namespace isopool::supervisor
