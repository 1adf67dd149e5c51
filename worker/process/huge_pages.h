// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::worker {

/// Has the kernel put what Python allocates from here on into huge pages, where the machine's
/// settings let a program ask for that (transparent_hugepage: madvise or always). The supervisor
/// does the same for malloc (supervisor/processes/zygote_process.cc). A fork then copies one entry
/// for 2 MB where it copied 512, and the child's end takes as many apart: a third of the time, for
/// a process that has imported torch. A child that writes has the 4 KiB that it writes to copied,
/// as ever.
///
/// Before Python is started.
void beginHugePages();

/// Gives back what was reserved and is not in use. Before the first fork: what a worker allocates
/// shall be no larger than it needs.
void endHugePages();

}  // namespace isopool::worker
