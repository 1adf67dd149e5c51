// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::worker {

/// Reduces the rights of this process, and of its forks, on the standard streams, which are the
/// supervisor's own, to writing a log. Standard input becomes /dev/null. Standard output and error,
/// if they are files or terminals, are opened again for writing only, so that user code can't read
/// what is typed at the terminal, nor, from `landlock` version 3 on, truncate the file. The
/// supervisor's own stream appends from then on: otherwise it would overwrite what workers wrote. A
/// stream that this user may not open stays as it is.
///
/// The process must have one thread. Throws SystemCallError.
void narrowStandardStreams(int landlock);

}  // namespace isopool::worker
