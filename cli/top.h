// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace isopool::cli {

struct TopOptions {
  std::chrono::milliseconds interval{1000};
  uint64_t count = 0;  ///< reports until the end; 0: no end
  bool json = false;
};

/// Shows what the supervisor at the address does, again and again: in place on a terminal until 'q'
/// or a signal, elsewhere a page or a line of JSON for each report. Throws SupervisorUnreachable
/// when the supervisor is gone or silent; the terminal is as it was before by then.
void runTop(const std::string& address, const TopOptions& options);

}  // namespace isopool::cli
