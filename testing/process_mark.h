// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace isopool::tests {

using Clock = std::chrono::steady_clock;

/// A mark in the environment by which a test finds all its descendant processes, however many
/// generations are between.
class ProcessMark {
 public:
  ProcessMark();
  /// The mark of another test process.
  explicit ProcessMark(std::string variable) : variable_(std::move(variable)) {}

  /// "NAME=value": put it into the environment of the first process.
  const std::string& variable() const { return variable_; }
  /// The living processes with the mark (zombies have no environment).
  std::vector<pid_t> processes() const;
  /// Kills the processes with the mark, but no other process that has got the id of one of them.
  void kill() const;
  /// Waits until no process has the mark. False after `patience`.
  bool waitUntilNoneIsLeft(std::chrono::milliseconds patience) const;

 private:
  std::string variable_;
};

/// Waits until the process is dead (perhaps a zombie). False after `patience`.
bool waitUntilDead(pid_t pid, std::chrono::milliseconds patience);

/// The number of a process's open descriptors.
size_t openDescriptors(pid_t pid);
/// The number of open descriptors whose file or memory object has `name` in its name.
size_t descriptorsCalled(pid_t pid, const std::string& name);

}  // namespace isopool::tests
