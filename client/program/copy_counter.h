// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ipc/channel/copy_reason.h"

namespace isopool::client {

/// Adds `bytes` to the figure for `reason` in isopool::copyCounters(). Any thread. The figures are
/// of the whole process and count from its start. An unknown reason, which a worker may have sent,
/// is not counted.
void countCopied(ipc::CopyReason reason, uint64_t bytes) noexcept;

}  // namespace isopool::client
