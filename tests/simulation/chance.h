// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace isopool::simulation {

using Microseconds = std::chrono::microseconds;

/// All random choices of a simulation. They follow from one seed.
class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}

  uint64_t below(uint64_t limit) { return engine_() % limit; }
  uint64_t between(uint64_t least, uint64_t most) { return least + below(most - least + 1); }
  /// True once in `times` on average; never if `times` is 0.
  bool oneIn(uint64_t times) { return times != 0 && below(times) == 0; }
  Microseconds time(Microseconds least, Microseconds most) {
    return Microseconds(
        between(static_cast<uint64_t>(least.count()), static_cast<uint64_t>(most.count())));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace isopool::simulation
