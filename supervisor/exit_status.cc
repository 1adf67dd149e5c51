// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/exit_status.h"

#include <cstring>

namespace isopool::supervisor {

std::string ExitStatus::describe() const {
  if (signal == 0) return "exited with code " + std::to_string(exitCode);
  const char* name = ::sigdescr_np(signal);
  return "was killed by signal " + std::to_string(signal) + " (" +
         (name != nullptr ? name : "unknown") + ")";
}

}  // namespace isopool::supervisor
