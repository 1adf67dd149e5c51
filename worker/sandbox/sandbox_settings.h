// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/settings/environment.h"

namespace isopool::worker {

/// How strictly a worker's user code is isolated from the rest of the machine; docs/sandbox.md
/// has the table.
enum class SandboxLevel { kNone, kDefault, kStrict };

const char* nameOf(SandboxLevel level);

/// The operator's settings for the sandbox: ISOPOOL_SANDBOX and its related variables.
struct SandboxSettings {
  SandboxLevel level = SandboxLevel::kDefault;
  std::optional<uint64_t> memory;     ///< bytes beyond those at the fork; ISOPOOL_WORKER_MEMORY
  std::optional<uint64_t> files;      ///< descriptors; ISOPOOL_WORKER_FILES
  std::optional<uint64_t> processes;  ///< of the user, not of the worker; ISOPOOL_WORKER_PROCESSES
  bool network = false;               ///< ISOPOOL_SANDBOX_NETWORK
  bool gpus = false;                  ///< ISOPOOL_WORKER_GPUS names some
  std::vector<std::string> readable;  ///< ISOPOOL_SANDBOX_READ
  std::vector<std::string> writable;  ///< ISOPOOL_SANDBOX_WRITE
  /// Where a worker makes a folder for temporary files if it needs one and can't have one in
  /// memory. The supervisor sets this and removes the folders
  /// (supervisor/processes/worker_folders.h). Empty: nowhere.
  std::string folders;
};

/// Reads the settings. Throws base::SettingError with one line that names the variable and its
/// valid values. The supervisor checks them before it starts a zygote, so this error only occurs in
/// a zygote that another program started.
SandboxSettings readSandboxSettings(const base::Environment& environment);

}  // namespace isopool::worker
