// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace isopool::supervisor {

/// Removes the named semaphores and shared memory whose names begin with `prefix`
/// (ipc/named_objects.h). Best effort: ignores errors, such as objects of other users.
void removeNamedObjects(const std::string& prefix) noexcept;

}  // namespace isopool::supervisor
