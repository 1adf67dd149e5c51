// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/control/zygote_messages.h"
#include "worker/memory/routed_blocks.h"
#include "worker/process/process_setup.h"
#include "worker/sandbox/sandbox.h"

namespace isopool::worker {

/// Runs a worker from its fork to its exit. To be called in a freshly forked process, between
/// fork() and PyOS_AfterFork_Child(). `forker` is the process that forked it and exits afterwards.
/// Never returns: an error of the runtime goes to stderr and, once that is set up, to the crash
/// log, and the process exits with code 70. If the supervisor dies, the kernel kills the worker.
[[noreturn]] void runWorker(const ipc::ForkWorker& order, WorkerDescriptors descriptors,
                            pid_t forker, RoutedBlocks& blocks, const SandboxPlan& plan);

}  // namespace isopool::worker
