// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/path_environment.h"

#include <unistd.h>

#include <utility>

namespace isopool {

PathEnvironment::PathEnvironment(std::string path) {
  if (path.empty()) return;
  if (path.front() != '/') {
    char folder[4096];
    if (::getcwd(folder, sizeof folder) != nullptr) path = std::string(folder) + "/" + path;
  }
  extraPythonPaths_.push_back(std::move(path));
}

}  // namespace isopool
