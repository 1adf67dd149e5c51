// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstring>
#include <string>

namespace isopool::base {

/// "signal 9 (Killed)", for the texts of deaths.
inline std::string signalText(int signal) {
  const char* name = ::sigdescr_np(signal);
  return "signal " + std::to_string(signal) + " (" + (name != nullptr ? name : "unknown") + ")";
}

}  // namespace isopool::base
