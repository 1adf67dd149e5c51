// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "base/ids.h"

namespace isopool::ipc {

/// The prefix, after the slash, of the names of POSIX semaphores and shared memory of a worker's
/// Python code. `folders` is the path of the supervisor's folders, unique to this supervisor. The
/// prefix is unique to the worker.
std::string namedObjectsOf(const std::string& folders, base::Epoch worker);
/// The common prefix for all workers of the supervisor.
std::string namedObjectsOf(const std::string& folders);

}  // namespace isopool::ipc
