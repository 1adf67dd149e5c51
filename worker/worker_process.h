// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ipc/ids.h"
#include "worker/process_setup.h"
#include "worker/routed_blocks.h"

namespace isopool::worker {

/// The life of a worker, from its fork: sets the process up, says that it is ready, serves calls. In
/// a fresh fork of the zygote, with the GIL.
[[noreturn]] void runWorker(ipc::Epoch epoch, uint64_t seed, WorkerDescriptors descriptors,
                            RoutedBlocks& routed);

}  // namespace isopool::worker
