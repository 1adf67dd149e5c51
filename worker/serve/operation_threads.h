// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::worker {

/// torch computes one operation with this thread and others, which keep the floating-point modes
/// and the processors that this thread had when they were made. Makes them if torch has more than
/// one, and gives them this thread's floating-point modes if theirs may be different. The main
/// thread, before user code runs for the first time, and before each call. Costs some nanoseconds
/// if nothing has changed.
void matchOperationThreads();

/// To be called before another program's code runs: that of the former one may have set modes in
/// these threads itself (OpenMP regions of an extension do), or have had more of them for a while.
void forgetOperationThreads();

}  // namespace isopool::worker
