// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::worker {

/// Leaves this process and what it forks only what writing a log takes of the standard streams,
/// which are the supervisor's own: standard input becomes /dev/null; standard output and error, if
/// they are files or terminals, are opened anew, so that nobody reads there what others type, and,
/// from `landlock` version 3 on, nobody empties the file. The supervisor's own stream then appends,
/// too: else it would write over what workers wrote. A stream that this user may not open stays as
/// it is. For a process of one thread. Throws SystemCallError.
void narrowStandardStreams(int landlock);

}  // namespace isopool::worker
