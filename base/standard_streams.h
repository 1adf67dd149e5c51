// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/fd.h"

namespace isopool::base {

/// The same open file (close-on-exec) at a descriptor number above the standard streams'. If a
/// program has closed its standard streams, the kernel gives their numbers to new descriptors, and
/// what the program prints would be written into ours. Keeps its number if no other one is free.
Fd awayFromStandardStreams(Fd fd) noexcept;

}  // namespace isopool::base
