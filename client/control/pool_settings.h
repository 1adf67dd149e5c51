// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "isopool/options.h"

namespace isopool::client {

/// How many workers a pool may have.
inline constexpr size_t kMostWorkers = 1024;

/// What a pool's PoolOptions come to: checked, and with the variables that override them. Constant
/// once made.
struct PoolSettings {
  uint32_t workers = 1;
  /// Of a shared supervisor, as PoolOptions or ISOPOOL_SOCKET name it; empty: a private one.
  std::string address;
  std::string programName;        ///< reported to the supervisor
  std::string supervisorProgram;  ///< of a private supervisor; empty: beside the library
  /// KEY=VALUE for isopoold's --default: what differs from the settings' defaults. Empty for a
  /// shared supervisor. The supervisor itself lets its environment and file override them.
  std::vector<std::string> supervisorDefaults;
  std::map<std::string, std::string> variables;  ///< of a private supervisor's processes
  std::vector<std::string> pythonPaths;          ///< absolute; for the workers' sys.path
  std::chrono::milliseconds cleanupTimeout{0};   ///< 0: no limit
  /// How long uses wait for a shared supervisor that was lost. 0: the pool ends with it.
  std::chrono::milliseconds reconnect{0};
  /// The output of a private supervisor's processes goes to the pools' loggers.
  bool collectOutput = false;
  bool noKill = false;
  bool allowOtherPython = false;
  std::vector<PoolSetting> own;  ///< those that this process decides, for reports

  /// Equal for pools that may share a private supervisor, as far as the options decide that.
  std::string identity() const;
};

/// Reads the environment. Throws Error for an invalid field or variable, which it names, and for a
/// field that `options.sharedSupervisor` would ignore.
PoolSettings settingsOf(const PoolOptions& options);

/// PoolOptions::allowOtherPython, unless ISOPOOL_ALLOW_OTHER_PYTHON overrides it now: a program may
/// set that variable when its pool exists. Throws Error for an invalid value.
bool allowsOtherPython(const PoolSettings& settings);

}  // namespace isopool::client
