// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

/// Memory of processes as the kernel accounts for it (/proc/PID/smaps_rollup), in megabytes (10^6).
struct Memory {
  double proportional = 0;  ///< PSS: a page that n processes map counts 1/n in each
  double own = 0;           ///< pages that no other process maps
};
Memory memoryOf(pid_t process);
Memory memoryOf(const std::vector<pid_t>& processes);
/// The resident memory of a process (VmRSS), in bytes; 0 if it has ended.
uint64_t residentBytesOf(pid_t process);
/// The shared memory of the whole system (Shmem of /proc/meminfo), in bytes.
uint64_t systemSharedBytes();
/// How many descriptors a process has; 0 if it has ended.
size_t descriptorsOf(pid_t process);

/// The activity of threads since their start.
struct Activity {
  double processorSeconds = 0;
  uint64_t voluntarySwitches = 0;  ///< how often they slept, and so how often they were woken
  Activity& operator+=(const Activity& other);
  Activity& operator-=(const Activity& other);
};
/// The activity of all threads of living processes.
Activity activityOf(const std::vector<pid_t>& processes);
/// The activity of a process's first thread only.
Activity activityOfThread(pid_t process);

pid_t parentOf(pid_t process);
std::vector<pid_t> childrenOf(pid_t process);
/// The children of a process, their children, and so on.
std::vector<pid_t> descendantsOf(pid_t process);

}  // namespace bench
