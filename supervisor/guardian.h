// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::supervisor {

/// Splits the calling process, which must have one thread: returns in a child, and stays behind as
/// its guardian. When that child is dead, however it died, everything that descends from it becomes
/// the guardian's, who kills it until nothing is left, and then ends.
///
/// Lifelines already kill the process groups of workers and zygote. The guardian is for what user
/// code started in sessions of its own, which no signal to a group reaches.
void continueUnderGuardian();

}  // namespace isopool::supervisor
