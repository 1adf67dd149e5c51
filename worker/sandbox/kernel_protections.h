// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "worker/sandbox/sandbox_settings.h"

namespace isopool::worker {

/// What this kernel, as it is configured and as far as whoever started us lets us, can do for a
/// sandbox.
struct KernelProtections {
  bool systemCallFilters = false;  ///< seccomp with SECCOMP_RET_TRAP
  int landlock = 0;                ///< the version of its interface; 0: there is none
  bool memoryLimit = true;         ///< RLIMIT_DATA counts; some boot with ignore_rlimit_data
  bool temporaryFolders = true;    ///< workers can have some in memory
};

KernelProtections probeKernelProtections();

/// One line for everything that `settings` ask for and the kernel has not: what it is, and what is
/// therefore not protected, or lacks. Empty if all is there.
std::vector<std::string> missingProtections(const SandboxSettings& settings,
                                            const KernelProtections& kernel);

}  // namespace isopool::worker
