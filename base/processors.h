// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace isopool::base {

/// How many processors this process may use at the same time, at least 1: those that the calling
/// thread may run on (sched_getaffinity(2)), but no more than the processor time that its control
/// groups allow, rounded up. That is how containers limit processors: `cpu.max` of version 2 and
/// `cpu.cfs_quota_us` of version 1, see cgroups(7); the group's ancestors count, too, as far as
/// they can be seen. Reads everything again at each call. Any thread. `root`: a folder in place of
/// "/", for tests.
int usableProcessors(const std::string& root = "");

}  // namespace isopool::base
