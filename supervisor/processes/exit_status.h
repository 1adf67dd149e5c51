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
  /// "SIGKILL" or "exit code 3".
  std::string name() const;
  /// Why a process ends so that nobody here ended, as far as its status tells.
  std::string likelyCause() const;
};

}  // namespace isopool::supervisor
