// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace isopool::supervisor {

/// Limits that the supervisor changes for itself, with the values that its children get back.
struct InheritedLimits {
  rlimit openFiles{};              ///< a maximum of 0: unchanged
  std::string oomScoreAdjustment;  ///< empty: unknown, unchanged
  std::optional<int> niceness;     ///< nothing: unchanged
};

/// Starts `executable --zygote` in a process group of its own, with default signals, one thread per
/// math library, the standard streams of this process (or `output`, if it is not null, as standard
/// output and error stream), and no other descriptors than `control` and `lifeline`. `variables`
/// (NAME=VALUE) override this process's environment. The caller keeps its own copies of the two
/// descriptors and closes them: the lifeline works only when the child has the only read end.
/// Returns the pid of a child, which the caller reaps. Throws base::SystemCallError; then there is
/// no child.
pid_t spawnZygote(const std::string& executable, const std::vector<std::string>& variables,
                  const base::Fd& control, const base::Fd& lifeline, const base::Fd* output,
                  const InheritedLimits& limits);

}  // namespace isopool::supervisor
