// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/control/messages.h"
#include "worker/memory/routed_blocks.h"
#include "worker/process/process_setup.h"
#include "worker/sandbox/sandbox.h"

namespace isopool::worker {

/// Lives a worker's life in a freshly forked process, between fork() and PyOS_AfterFork_Child().
/// `forker` forked it and ends. Never returns.
[[noreturn]] void runWorker(const ipc::ForkWorker& order, WorkerDescriptors descriptors,
                            pid_t forker, RoutedBlocks& blocks, const SandboxPlan& plan);

}  // namespace isopool::worker
