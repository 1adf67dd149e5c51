// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"

namespace isopool::supervisor {

/// How a process ended.
struct ExitStatus {
  int signal = 0;                       ///< that killed it; 0 if it exited by itself
  int exitCode = 0;                     ///< 0 if a signal killed it
  base::Milliseconds processorTime{0};  ///< that it has used, in user code and in the kernel
  /// Whether the signal was SIGKILL of the kernel because memory ran out; nothing: unknown.
  std::optional<bool> killedForMemory{};
  /// That was the limit of the process's own control group (Processes::confine()).
  bool killedForOwnLimit = false;

  /// "was killed by signal 9 (Killed)" or "exited with code 3".
  std::string describe() const;
  /// "SIGKILL" or "exit code 3".
  std::string name() const;
  /// The probable cause, from the status alone, of an end that the supervisor did not cause: a text
  /// for operators.
  std::string likelyCause() const;
};

}  // namespace isopool::supervisor
