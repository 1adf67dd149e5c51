// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

namespace isopool::base {

/// Closes every descriptor from `first` on, except those in `kept`. If the kernel (before 5.9) or a
/// filter around this process refuses close_range(2), closes those that /proc/self/fd lists. Throws
/// SystemCallError if that folder can't be read either: then some descriptors may still be open. No
/// other thread may open or close descriptors meanwhile.
void closeDescriptorsBut(std::span<const int> kept, int first);

}  // namespace isopool::base
