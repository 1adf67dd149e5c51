// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::worker {

/// Installs the hooks that forbidProcessStarts() activates: Python's functions that start a process
/// then raise PermissionError and are counted by name, and native forks are counted, before the
/// filter refuses their system calls. Call once, with the GIL. Throws std::runtime_error if another
/// audit hook of Python refuses this one.
void watchProcessStarts();

/// Activates the hooks, for the rest of the process's life. Any thread.
void forbidProcessStarts() noexcept;

}  // namespace isopool::worker
