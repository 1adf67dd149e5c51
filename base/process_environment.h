// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace isopool::base {

/// This process's variables, "NAME=VALUE" each, in their order. Without entries that have no '=':
/// these set no variable, see environ(7). Empty after clearenv(3). Thread-safe as getenv(3): no
/// other thread may change the environment meanwhile.
std::vector<std::string> processEnvironment();

}  // namespace isopool::base
