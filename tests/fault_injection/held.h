// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <iosfwd>

namespace isopool::tests {

/// What a failed call may leave behind in a process and in the thread that made it.
struct Held {
  size_t descriptors = 0;
  size_t mappings = 0;        ///< of memory objects
  size_t blockedSignals = 0;  ///< by the calling thread
  bool operator==(const Held&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Held& held);

/// Counts those of this process and of the calling thread.
Held heldNow();

}  // namespace isopool::tests
