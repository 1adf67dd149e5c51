// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/simulation/process_table.h"

namespace isopool::simulation {

/// The result of one seed.
struct Report {
  std::vector<std::string> violations;  ///< empty if every claim held
  uint64_t trace = 0;                   ///< a hash of all events: equal for equal seeds
  uint64_t steps = 0;
  double seconds = 0;  ///< the simulated time
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
/// clients: a storm in which anything may fail, a calm after which everything must be served, and
/// an end. All events follow from `seed`. `plant` may add a fault that the simulation should find.
Report simulate(uint64_t seed, const std::function<void(Misfortunes&)>& plant = nullptr);

}  // namespace isopool::simulation
