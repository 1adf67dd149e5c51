// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>

#include "supervisor/restart_policy.h"

namespace isopool::supervisor {

/// What isopoold was told, by flags and by ISOPOOL_* environment variables (a flag wins).
/// `isopoold --help` explains each.
struct Options {
  bool privatePool = false;
  int controlFd = 3;
  int lifelineFd = 4;
  std::string worker;  ///< path of the isopool-worker executable
  uint32_t spares = 1;
  RestartLimits restart;
  uint64_t outputArena = 4u << 20;
  uint64_t outputArenaLimit = uint64_t{4} << 30;
  std::chrono::milliseconds zygoteTimeout{120'000};
  std::chrono::milliseconds forkTimeout{5'000};
  std::chrono::milliseconds workerTimeout{30'000};
  bool noKill = false;  ///< the three time-outs are as good as none
};

/// Not options but what to print instead, and the exit code that goes with it.
struct OptionsRefused {
  std::string text;  ///< one line for an error, more for --help
  int exitCode = 0;
};

std::variant<Options, OptionsRefused> parseOptions(int argc, const char* const* argv);

}  // namespace isopool::supervisor
