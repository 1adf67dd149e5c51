// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace isopool::supervisor {

/// What the supervisor changed for itself and its children shall have as it was.
struct InheritedLimits {
  rlimit openFiles{};
  std::string oomScoreAdjustment;  ///< empty: unknown, leave it
};

/// Variables that are always 1 in zygote and workers: a math library that starts threads at import
/// makes every later fork a gamble.
inline constexpr std::array<std::string_view, 3> kOneThread{
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"};

/// Starts `executable --zygote` in a process group of its own, with default signals, one thread per
/// math library, the error stream and the like as ours, and no descriptors but its two. Of the
/// environment, `variables` (NAME=VALUE) win over ours. Throws base::SystemCallError.
pid_t spawnZygote(const std::string& executable, const std::vector<std::string>& variables,
                  const base::Fd& control, const base::Fd& lifeline, const InheritedLimits& limits);

}  // namespace isopool::supervisor
