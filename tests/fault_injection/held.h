// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <iosfwd>

namespace isopool::tests {

/// What a process holds that a call that failed may leak.
struct Held {
  size_t descriptors = 0;
  size_t mappings = 0;  ///< of memory objects
  bool operator==(const Held&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Held& held);

/// Of this process.
Held heldNow();

}  // namespace isopool::tests
