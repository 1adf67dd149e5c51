// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::worker {

/// Makes the kernel use huge pages for what Python allocates from here on, if the machine's
/// settings let a program request them (transparent_hugepage: madvise or always). The supervisor
/// does the same for malloc (supervisor/processes/zygote_process.cc).
///
/// A fork then copies one page table entry for 2 MB instead of 512, and the exit of the child
/// removes as many fewer. For a process that has imported torch this takes a third of the time. A
/// child that writes still copies only the 4 KiB page that it writes to.
///
/// To be called before Python is started. Without huge pages it has no effect.
void beginHugePages();

/// Unmaps the reserved address space that is not in use. To be called before the first fork, so
/// that a worker's own allocations do not use huge pages.
void endHugePages();

}  // namespace isopool::worker
