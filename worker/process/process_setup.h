// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "base/fd.h"
#include "ipc/control/frame.h"

namespace isopool::worker {

/// What a worker is born with besides 0, 1 and 2.
struct WorkerDescriptors {
  base::Fd control;
  base::Fd lifeline;
  base::Fd doorbell;
  base::Fd crashLog;
  base::Fd statusPage;
};

/// How many threads this process has.
size_t threadCount();

/// True if the program runs with ISOPOOL_NO_KILL: somebody may attach a debugger.
bool debugged();

/// The first acts of a forked worker, before it runs anything of Python: a group of its own,
/// default signals, no descriptor of the zygote's, an armed lifeline, no core dumps unless asked
/// for; it ends with the supervisor. `forker` forked it and ends. Throws SystemCallError.
void setUpWorkerProcess(const WorkerDescriptors& descriptors, pid_t forker);

}  // namespace isopool::worker
