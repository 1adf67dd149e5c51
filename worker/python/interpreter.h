// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Whether the packages that a user has installed for himself, below his home folder, are found.
enum class UserPackages : uint8_t { kAsUsual, kNot };

/// Starts CPython in this process as `executable` would start it, so that the packages of its
/// environment are found; PYTHONPATH and friends are honoured. Ends by installing our own part, the
/// module _isopool and the package isopool_worker. The calling thread holds the GIL afterwards.
/// Throws std::runtime_error.
void startInterpreter(const char* executable, UserPackages users);

/// isopool_worker.<module>.<name>, or null with a Python error set.
PyRef workerFunction(const char* module, const char* name);

}  // namespace isopool::worker
