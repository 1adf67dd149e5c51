// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/pidfd.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace isopool::ipc {

pid_t processOf(const Fd& pidfd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(pidfd.get()));
  for (std::string line; std::getline(info, line);) {
    // -1 once it is reaped.
    if (line.rfind("Pid:", 0) == 0) return std::max(0, std::atoi(line.c_str() + 4));
  }
  return 0;
}

}  // namespace isopool::ipc
