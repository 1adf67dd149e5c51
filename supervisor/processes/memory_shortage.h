// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::supervisor {

/// Installs a new-handler: an allocation that fails is tried again for two seconds at most, then it
/// throws std::bad_alloc. The calling thread blocks meanwhile. A supervisor that answers late keeps
/// its workers; one that dies loses them. Call once, while the process has one thread.
void waitForMemoryWhenThereIsNone();

}  // namespace isopool::supervisor
