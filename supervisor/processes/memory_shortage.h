// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::supervisor {

/// From now on, an allocation of this process for which there is no memory waits for some, two
/// seconds at most; then it throws std::bad_alloc. Everything else of the process waits with it: a
/// supervisor that is late keeps its workers, one that dies does not. Call it once, with one
/// thread.
void waitForMemoryWhenThereIsNone();

}  // namespace isopool::supervisor
