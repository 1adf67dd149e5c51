// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

namespace isopool::worker {

/// User code may fork in a worker. The child has the same memory mapped, so it must touch nothing
/// of the runtime: it would give back what its parent still uses and publish what it never ran.

/// From now on a child forked from this process has the runtime marked dead and these descriptors
/// closed, whoever forks it (os.fork, multiprocessing, a library's fork()).
void watchForForks(std::span<const int> descriptors);

/// True in such a child.
bool isForkedChild() noexcept;

}  // namespace isopool::worker
