// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace isopool::supervisor {

/// Removes the named semaphores and the shared memory whose names begin with `prefix`
/// (ipc/named_objects.h), as far as this user may.
void removeNamedObjects(const std::string& prefix) noexcept;

}  // namespace isopool::supervisor
