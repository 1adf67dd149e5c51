// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace isopool::batch {

/// A place at which a test can end the process: each step that changes a file of the output folder
/// is between two of them. With ISOPOOL_BATCH_CRASH_AT=NAME:N, the N-th visit of NAME kills this
/// process (SIGKILL). The workers have crash points of their own, with other names.
void crashPoint(std::string_view name);

}  // namespace isopool::batch
