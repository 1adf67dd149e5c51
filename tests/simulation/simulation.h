// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/simulation/process_table.h"

namespace isopool::simulation {

/// What came of one seed.
struct Report {
  std::vector<std::string> violations;  ///< empty: all that must hold did
  uint64_t trace = 0;                   ///< the same for the same seed
  uint64_t steps = 0;
  double seconds = 0;  ///< of simulated time
  uint64_t calls = 0;
  uint64_t answered = 0;
  uint64_t lost = 0;
  uint64_t notStarted = 0;
  uint64_t overdue = 0;
  uint64_t refused = 0;
  uint64_t workers = 0;
  uint64_t zygotes = 0;
  uint64_t quarantines = 0;
};

/// Runs one whole life of the shipped Supervisor, private or shared, with simulated processes and
/// clients: a storm in which anything may fail, a calm after which everything has to be served, and
/// an end. All that happens follows from `seed`. `plant` may add a fault that should be found.
Report simulate(uint64_t seed, const std::function<void(Misfortunes&)>& plant = nullptr);

}  // namespace isopool::simulation
