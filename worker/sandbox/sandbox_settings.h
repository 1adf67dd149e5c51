// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/settings/environment.h"

namespace isopool::worker {

/// What keeps user code in a worker from the rest of the machine: docs/sandbox.md has the table.
enum class SandboxLevel { kNone, kDefault, kStrict };

const char* nameOf(SandboxLevel level);

/// What an operator asked for, by ISOPOOL_SANDBOX and the variables beside it.
struct SandboxSettings {
  SandboxLevel level = SandboxLevel::kDefault;
  std::optional<uint64_t> memory;     ///< bytes beyond those at birth; ISOPOOL_WORKER_MEMORY
  std::optional<uint64_t> files;      ///< descriptors; ISOPOOL_WORKER_FILES
  std::optional<uint64_t> processes;  ///< of the user, not of the worker; ISOPOOL_WORKER_PROCESSES
  bool network = false;               ///< ISOPOOL_SANDBOX_NETWORK
  std::vector<std::string> readable;  ///< ISOPOOL_SANDBOX_READ
  std::vector<std::string> writable;  ///< ISOPOOL_SANDBOX_WRITE
  /// Where a worker makes itself a folder if it needs one and can have none in memory; the
  /// supervisor says it, and removes them (supervisor/processes/worker_folders.h). Empty: nowhere.
  std::string folders;
};

/// Throws base::SettingError with one line that names the variable and what it may be. The
/// supervisor has checked what it hands on, so that means a zygote that something else has started.
SandboxSettings readSandboxSettings(const base::Environment& environment);

}  // namespace isopool::worker
