// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "base/fd.h"
#include "ipc/control/frame.h"

namespace isopool::worker {

/// The descriptors that the supervisor sends for a new worker; besides them a worker has only 0,
/// 1 and 2.
struct WorkerDescriptors {
  base::Fd control;     ///< stream socket to the supervisor
  base::Fd lifeline;    ///< read end of a pipe whose write end only the supervisor holds
  base::Fd doorbell;    ///< memory object of one page, mapped read-only
  base::Fd crashLog;    ///< memory object, see crash_log.h
  base::Fd statusPage;  ///< memory object of one page that the worker writes
  base::Fd output;      ///< pipe for the standard streams; invalid: they stay the zygote's
};

/// The number of threads of this process, those of native libraries included; 0 if /proc is not
/// mounted.
size_t threadCount();

/// True if ISOPOOL_NO_KILL is set: a debugger may be attached to workers.
bool debugged();

/// Sets up a freshly forked worker, before it runs any Python: a process group of its own, an armed
/// lifeline, its own standard streams if the supervisor collects its output, no descriptors of the
/// zygote, default signals, no core dumps unless ISOPOOL_CORE_DUMPS is set, a higher OOM score.
/// From then on the kernel kills the worker when the supervisor dies. Waits until `forker`, which
/// forked this process, has exited. Throws SystemCallError.
void setUpWorkerProcess(const WorkerDescriptors& descriptors, pid_t forker);

}  // namespace isopool::worker
