// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "base/ids.h"

namespace isopool::ipc {

/// What the names of the POSIX semaphores and shared memory of a worker's Python code begin with,
/// behind the slash. `folders` is the name of its supervisor's folders, which no other supervisor
/// has. No other worker's names begin like this.
std::string namedObjectsOf(const std::string& folders, base::Epoch worker);
/// The same for all workers of the supervisor.
std::string namedObjectsOf(const std::string& folders);

}  // namespace isopool::ipc
