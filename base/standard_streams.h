// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/fd.h"

namespace isopool::base {

/// The same open file (close-on-exec) at a descriptor above the standard streams'. In a program
/// that has closed those the kernel gives their numbers to new descriptors, and what the program
/// then prints would go into ours. Stays where it is if there is no other number.
Fd awayFromStandardStreams(Fd fd) noexcept;

}  // namespace isopool::base
