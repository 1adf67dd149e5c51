// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::worker {

/// OpenBLAS ends its threads before each fork() of user code, and makes others in the next
/// operation, whose floating-point modes they keep for all programs. From now on they are made at
/// once after the fork, with the modes that this thread has now. Only if it has several. To be
/// called once, before user code runs.
void remakeBlasThreadsAfterForks();

}  // namespace isopool::worker
