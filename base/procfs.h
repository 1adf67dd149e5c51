// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace isopool::base {

/// The children of this process, dead ones that it has not reaped included. Looks at every process
/// of the system, 20 us each, only where the kernel keeps no list of children.
std::vector<pid_t> childrenOf(pid_t parent);

/// Of /proc/PID/stat (proc(5)); all zero if there is no such process.
struct ProcessStatus {
  char state = 0;
  pid_t parent = 0;
  unsigned flags = 0;  ///< PF_... of the kernel, of the main thread
};
ProcessStatus statusOf(pid_t pid);

/// Resident memory of a process that no file and no memory object stands for; 0 if it is gone.
uint64_t residentAnonymousBytes(pid_t pid);
/// The name of its program, as ps shows it; empty if it is gone.
std::string programOf(pid_t pid);

}  // namespace isopool::base
