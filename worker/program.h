// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::worker {

/// The program isopool-worker: the zygote and, as its forks, the workers. isopoold starts it;
/// started by hand it only prints what --help, --check-sandbox and --preloads-of ask for.
///
/// In main(), or in a Python that has just started and has one thread, which holds the GIL. Returns
/// the exit status of what only prints; otherwise the process ends in it.
int runProgram(int argc, char** argv);

}  // namespace isopool::worker
