// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace isopool::supervisor {

/// Control groups (cgroups(7), version 2) below the group in which the supervisor was started, if
/// the system has delegated that group to it:
///
///   GROUP/isopoold    the supervisor, its guardian and the zygote
///   GROUP/worker-PID  a worker and all that its user code starts, however it does that
///
/// The kernel limits the memory of a worker's group and the number of its tasks, and kills all its
/// processes at once. Any thread.
class WorkerControlGroups {
 public:
  /// 0: no limit.
  struct Limits {
    uint64_t memory = 0;  ///< bytes, with all that the group's processes touch first
    uint64_t tasks = 0;   ///< processes and threads
  };

  /// Moves the calling process and its guardian, the parent, to GROUP/isopoold. Throws
  /// std::runtime_error with the reason if the system does not allow that: then nothing has
  /// changed. `root`: a folder in place of "/", for tests. `successor`: the guardian and this
  /// process are in GROUP/isopoold already, because another supervisor of the same guardian has
  /// moved it.
  explicit WorkerControlGroups(const std::string& root = "", bool successor = false);

  /// Makes a group for the worker, a child that has run no user code, and moves it there. Returns
  /// an empty text, or why that is not possible: then the worker stays in the supervisor's group.
  /// Takes 10 to 20 ms, because the kernel waits until no process is being forked or ended.
  std::string confine(pid_t worker, const Limits& limits);
  /// Raises the limit of memory of a worker's group; never lowers it. Does nothing if there is no
  /// such group or it has no limit.
  void allowMemory(pid_t worker, uint64_t bytes);
  /// Sends SIGKILL to all processes of a worker's group. Does nothing if there is no such group.
  void kill(pid_t worker);
  /// How many processes of the group the kernel has killed because the group reached its limit of
  /// memory.
  uint64_t memoryKills(pid_t worker) const;
  /// Removes the group of a worker that is reaped. If processes of it are still ending, a later
  /// call of this or of removeEmpty() removes it.
  void remove(pid_t worker);
  /// Removes groups of workers that were reaped and whose last process has ended since.
  void removeEmpty();

  /// How many processes of this supervisor, workers and others, the kernel has killed because
  /// memory ran out. Nothing if the kernel does not count them.
  std::optional<uint64_t> allMemoryKills() const;

 private:
  struct Group {
    std::string folder;
    uint64_t memory = 0;
  };

  void adopt(const std::string& leaf);
  std::string folderOf(pid_t worker) const;
  void leave(const std::string& folder) ISOPOOL_REQUIRES(mutex_);
  void removeLeaving() ISOPOOL_REQUIRES(mutex_);

  std::string folder_;  ///< GROUP
  bool limitsMemory_ = false;
  bool limitsTasks_ = false;
  mutable base::Mutex mutex_;
  std::map<pid_t, Group> groups_ ISOPOOL_GUARDED_BY(mutex_);
  /// Folders that could not be removed yet.
  std::vector<std::string> leaving_ ISOPOOL_GUARDED_BY(mutex_);
};

}  // namespace isopool::supervisor
