// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "worker/memory/routed_blocks.h"

namespace isopool::worker {

/// Arrays that numpy allocates on this thread from now on, also in forked children, become blocks
/// of shared memory while a ScopedBlockSource exists, as torch's tensors do: a result that is an
/// array is then lent to the client without a copy. Short arrays stay on the heap. numpy's
/// interface for this is NEP 49. Does nothing if numpy is not imported or is older than 1.22.
/// `blocks` must never be destroyed. With the GIL. Throws std::runtime_error if numpy refuses.
void routeNumpyMemory(RoutedBlocks& blocks);

}  // namespace isopool::worker
