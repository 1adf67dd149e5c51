// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "tools/benchmark_models.h"

namespace tools {

struct CaseResult {
  size_t calls = 0;
  double callsPerSecond = 0;
  std::vector<double> seconds;  ///< each call's time, sorted

  /// The time that `percent` of the calls stayed below.
  double latency(double percent) const;
};

/// How a case is run besides what it runs.
struct CaseSetting {
  size_t threads = 1;
  std::chrono::duration<double> least{5};  ///< goes on until each thread has completed a call
  bool sharedInputs = false;               ///< copies of the inputs lie in shared memory
};

/// Calls `item` from all threads at once, each time with fresh copies of `inputs`, which are made
/// outside the measured time. Gradients are off. Throws what a call throws.
CaseResult runCase(const WorkItem& item, const std::vector<at::IValue>& inputs,
                   const CaseSetting& setting);

}  // namespace tools
