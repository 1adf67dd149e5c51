// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace isopool::base {

/// The children of `parent`, also dead ones that it has not reaped. Complete only if `parent` is
/// the calling process. If the kernel keeps no list of children, looks at every process of the
/// system, 20 us each.
std::vector<pid_t> childrenOf(pid_t parent);

/// Fields of /proc/PID/stat (proc(5)); all zero if no such process exists.
struct ProcessStatus {
  char state = 0;
  pid_t parent = 0;
  unsigned flags = 0;  ///< the kernel's PF_... flags of the main thread
  /// Of all its threads, also those that have ended, in user code and in the kernel.
  std::chrono::milliseconds processorTime{0};
  uint32_t threads = 0;
};
ProcessStatus statusOf(pid_t pid);

/// Where the kernel has put the arguments of this process, one behind the other, each with its
/// final 0: what ps shows. Empty if the kernel doesn't say (proc(5), /proc/PID/stat: arg_start,
/// arg_end).
std::span<char> ownArguments();

/// Resident memory of a process that belongs neither to a file nor to a memory object; 0 if the
/// process is gone.
uint64_t residentAnonymousBytes(pid_t pid);
/// How many bytes of private writable memory a process may map, as RLIMIT_DATA limits it;
/// UINT64_MAX if it is gone, has no limit, or is not this user's.
uint64_t privateMemoryLimit(pid_t pid);
/// How much of that limit is left; 0 if the process has more already, UINT64_MAX as above.
uint64_t privateMemoryLeft(pid_t pid);
/// The number of descriptors that the calling process has open.
uint64_t openDescriptors();
/// The name of a process's program, as ps shows it; empty if the process is gone.
std::string programOf(pid_t pid);

}  // namespace isopool::base
