// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "ipc/crash_point.h"

namespace isopool::tests {

/// All crash points that this kind of process reaches. Points of either end count for clients
/// and workers.
std::vector<ipc::CrashPoint> pointsOf(ipc::CrashPointOwner owner);

/// The request in the syntax of the environment variables.
std::string requestFor(ipc::CrashPoint point, uint32_t nth);

}  // namespace isopool::tests
