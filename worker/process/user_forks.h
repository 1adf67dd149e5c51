// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

namespace isopool::worker {

/// User code may fork in a worker. The child has the worker's shared memory mapped, so the runtime
/// must be inactive there: otherwise the child would return leases that its parent still uses and
/// publish answers to calls that it did not run.

/// Installs a handler of fork() (pthread_atfork): in each child that this process forks from now
/// on the runtime is marked dead and `descriptors` are closed. It covers os.fork(),
/// multiprocessing and forks of native libraries. In a child of clone() without handlers the
/// runtime is dead, too, but the descriptors are open. Call once per process, with at most 8
/// descriptors; more are ignored.
void watchForForks(std::span<const int> descriptors);

/// True in such a child. Any thread; async-signal-safe.
bool isForkedChild() noexcept;

}  // namespace isopool::worker
