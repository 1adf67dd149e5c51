// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "tools/benchmark_models.h"

namespace tools {

/// The measurements of one case.
struct CaseResult {
  size_t calls = 0;
  double callsPerSecond = 0;
  std::vector<double> seconds;  ///< the time of each call, sorted

  /// The percentile of the calls' times, in seconds: `percent` of the calls took no longer.
  double latency(double percent) const;
};

/// The parameters of a case.
struct CaseSetting {
  size_t threads = 1;
  std::chrono::duration<double> least{5};  ///< shortest time; each thread completes a call at least
  bool sharedInputs = false;               ///< put the copies of the inputs into shared memory
};

/// Calls `item` from all threads concurrently, each time with new copies of `inputs`, which are
/// made outside the measured time. Gradients are off. Throws the first exception of a call.
CaseResult runCase(const WorkItem& item, const std::vector<at::IValue>& inputs,
                   const CaseSetting& setting);

}  // namespace tools
