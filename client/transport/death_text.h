// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "isopool/errors.h"

namespace isopool::client {

/// Worker and cause of death in one line, for messages and statistics, without the crash log:
/// "worker 1 (pid 4711) died by signal 9 (SIGKILL)".
std::string deathText(const WorkerLost::Death& death);

}  // namespace isopool::client
