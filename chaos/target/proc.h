// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

/// Information of the kernel about processes, see proc(5). It may be outdated when it is returned.
namespace chaos {

/// A process, distinguished from a later one with the same number.
struct ProcessId {
  pid_t pid = -1;
  uint64_t startTime = 0;
  bool operator<(const ProcessId& other) const {
    return pid != other.pid ? pid < other.pid : startTime < other.startTime;
  }
};

struct ProcessStatus {
  std::string name;
  char state = 'X';
  bool forkedOnly = false;  ///< no exec() since its fork
  uint64_t startTime = 0;
  bool alive() const { return state != 'X' && state != 'Z'; }
};
ProcessStatus statusOf(pid_t pid);
std::vector<pid_t> childrenOf(pid_t pid);
std::vector<pid_t> threadsOf(pid_t pid);
bool hasVariable(pid_t pid, const std::string& assignment);
uint64_t virtualBytes(pid_t pid);
/// False while the process has no handler for SIGUSR1: the signal would kill it.
bool handlesInterruptions(pid_t pid);

/// A sealed memory object of isopool.
struct MemoryObject {
  std::string label;  ///< "isopool:output"
  uint64_t bytes = 0;
};
/// What a process holds through descriptors and mappings.
struct Holdings {
  /// The number of descriptors of each kind ("socket", "anon_inode:[eventfd]", a path), without
  /// those of memory objects.
  std::map<std::string, size_t> otherDescriptors;
  std::map<uint64_t, MemoryObject> objects;  ///< by inode
};
Holdings holdingsOf(pid_t pid);

uint64_t systemSharedBytes();

}  // namespace chaos
