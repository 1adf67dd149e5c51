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

/// Limits that the supervisor changes for itself, with the values that its children get back.
struct InheritedLimits {
  rlimit openFiles{};              ///< a maximum of 0: unchanged
  std::string oomScoreAdjustment;  ///< empty: unknown, unchanged
};

/// Variables that are always 1 in zygote and workers: a math library that starts threads at import
/// makes every later fork unsafe.
inline constexpr std::array<std::string_view, 3> kOneThread{
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"};

/// Starts `executable --zygote` in a process group of its own, with default signals, one thread per
/// math library, the standard streams of this process, and no other descriptors than `control` and
/// `lifeline`. `variables` (NAME=VALUE) override this process's environment. The caller keeps its
/// own copies of the two descriptors and closes them: the lifeline works only when the child has
/// the only read end. Returns the pid of a child, which the caller reaps. Throws
/// base::SystemCallError; then there is no child.
pid_t spawnZygote(const std::string& executable, const std::vector<std::string>& variables,
                  const base::Fd& control, const base::Fd& lifeline, const InheritedLimits& limits);

}  // namespace isopool::supervisor
