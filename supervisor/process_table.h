// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace isopool::supervisor {

/// The children of a process, dead ones that nobody has reaped included, as /proc lists them now.
/// Costs about 20 us per process of the system: for rare events.
std::vector<pid_t> childrenOf(pid_t parent);

/// Resident memory of a process that no file and no memory object stands for; 0 if it is gone.
uint64_t residentAnonymousBytes(pid_t pid);
/// The name of its program, as ps shows it; empty if it is gone.
std::string programOf(pid_t pid);

}  // namespace isopool::supervisor
