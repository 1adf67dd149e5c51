// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "worker/sandbox/sandbox_settings.h"

namespace isopool::worker {

/// What this kernel offers for a sandbox, given its configuration and the restrictions of the
/// process that started this one.
struct KernelProtections {
  bool systemCallFilters = false;  ///< seccomp with SECCOMP_RET_TRAP
  int landlock = 0;                ///< the version of its interface; 0: not available
  bool memoryLimit = true;         ///< false if the kernel was booted with ignore_rlimit_data
  bool temporaryFolders = true;    ///< workers can have folders in memory
};

/// Asks the kernel for all but temporaryFolders, without a change to this process.
KernelProtections probeKernelProtections();

/// One line for each protection that `settings` require and the kernel lacks: its name, the cause,
/// and what is not protected or missing as a result. Empty if the kernel has them all.
std::vector<std::string> missingProtections(const SandboxSettings& settings,
                                            const KernelProtections& kernel);

}  // namespace isopool::worker
