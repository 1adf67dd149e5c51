// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <iosfwd>

namespace isopool::tests {

/// Resources of a process that a failed call may leak.
struct Held {
  size_t descriptors = 0;
  size_t mappings = 0;  ///< of memory objects
  bool operator==(const Held&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Held& held);

/// Counts those of this process.
Held heldNow();

}  // namespace isopool::tests
