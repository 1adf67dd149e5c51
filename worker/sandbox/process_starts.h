// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::worker {

/// Prepares for forbidProcessStarts(): Python's ways to start a process will raise PermissionError
/// by name and be counted, and native forks be counted, before the filter refuses what they need.
/// With the GIL. Throws std::runtime_error.
void watchProcessStarts();

/// From here on.
void forbidProcessStarts() noexcept;

}  // namespace isopool::worker
