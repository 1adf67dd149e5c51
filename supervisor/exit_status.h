// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace isopool::supervisor {

/// How a process ended.
struct ExitStatus {
  int signal = 0;  ///< 0 if it exited by itself
  int exitCode = 0;

  /// "was killed by signal 9 (Killed)" or "exited with code 3".
  std::string describe() const;
};

}  // namespace isopool::supervisor
