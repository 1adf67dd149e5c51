// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

#include "ipc/control/operator_messages.h"

namespace isopool::cli {

/// Completed calls per second between two reports.
struct Rates {
  double total = 0;                      ///< of all workers
  std::map<uint64_t, double> ofWorkers;  ///< by epoch
  std::map<uint64_t, double> ofClients;  ///< by number
};

/// Computes rates from each report and the previous one. Not thread-safe.
class RateMeter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// The rates between the previous report and this one, which was received at `at`. No value for
  /// the first report.
  std::optional<Rates> compare(const ipc::Report& report, TimePoint at);

 private:
  struct Counts {
    TimePoint at;
    uint64_t total = 0;
    std::map<uint64_t, uint64_t> ofWorkers;
    std::map<uint64_t, uint64_t> ofClients;
  };

  std::optional<Counts> last_;
};

}  // namespace isopool::cli
