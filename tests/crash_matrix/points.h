// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "ipc/crash_point.h"

namespace isopool::tests {

/// All crash points to which this kind of process comes; either end's are clients' and workers'
/// too.
std::vector<ipc::CrashPoint> pointsOf(ipc::CrashPointOwner owner);

/// As an environment variable asks for it.
std::string requestFor(ipc::CrashPoint point, uint32_t nth);

}  // namespace isopool::tests
