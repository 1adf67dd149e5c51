// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace isopool::simulation {

/// The body of a simulated call, and of its answer.
struct CallText {
  uint64_t call = 0;
  int64_t microseconds = 0;  ///< the time that it takes; below 0: it never ends
  uint32_t package = 0;      ///< the package that it needs; 0: none
  uint32_t barren = 0;       ///< 1: the worker dies of it
};

}  // namespace isopool::simulation
