// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace isopool::cli {

/// How `top` shows reports.
struct TopOptions {
  std::chrono::milliseconds interval{1000};
  uint64_t count = 0;  ///< end after this many reports; 0: no end
  bool json = false;
};

/// Shows reports of the supervisor at the address repeatedly. On a terminal the page refreshes in
/// place until 'q' or a signal; otherwise each report is a page, or a line of JSON. Throws
/// SupervisorUnreachable if the supervisor has ended or does not answer. The terminal is restored
/// before the function returns or throws.
void runTop(const std::string& address, const TopOptions& options);

}  // namespace isopool::cli
