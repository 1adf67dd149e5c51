// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "bench/child_process.h"

namespace bench {

/// A shared supervisor with two workers, in a temporary folder. The managers of this process and of
/// its children attach to it (ISOPOOL_SOCKET). The destructor kills it and removes the folder.
class SharedSupervisor {
 public:
  /// `program`: isopoold. Returns when it listens; throws std::runtime_error after a minute, or if
  /// it ends before.
  explicit SharedSupervisor(const std::string& program);
  ~SharedSupervisor();

  const std::string& folder() const { return folder_; }
  ChildProcess& process() { return *process_; }
  pid_t pid() const { return process_->pid(); }

 private:
  std::string folder_;
  std::optional<ChildProcess> process_;
};

}  // namespace bench
