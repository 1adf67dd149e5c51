// SPDX-License-Identifier: BSD-3-Clause
#include "base/process_environment.h"

#include <unistd.h>

#include <cstring>

namespace isopool::base {

std::vector<std::string> processEnvironment() {
  std::vector<std::string> variables;
  // Null after clearenv().
  if (::environ == nullptr) return variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    if (std::strchr(*entry, '=') != nullptr) variables.emplace_back(*entry);
  }
  return variables;
}

}  // namespace isopool::base
