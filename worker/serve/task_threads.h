// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::worker {

/// torch's threads for tasks (at::launch(), torch.jit.fork() in TorchScript) exist from the first
/// task on and serve all programs of the worker. From now on each task has the floating-point modes
/// of the code that starts it, as torch itself gives it grad mode and autocast of that code. To be
/// called once, before the first task.
void carryModesToTaskThreads();

}  // namespace isopool::worker
