// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace isopool::tests {

using Clock = std::chrono::steady_clock;

/// A mark in the environment by which a test finds every process that it is the ancestor of,
/// however far away.
class ProcessMark {
 public:
  ProcessMark();
  /// The mark that another test process has set.
  explicit ProcessMark(std::string variable) : variable_(std::move(variable)) {}

  /// "NAME=value", for the environment of the first of them.
  const std::string& variable() const { return variable_; }
  /// Those alive (zombies have no environment).
  std::vector<pid_t> processes() const;
  /// Kills them: none that has only got a number that one of them had.
  void kill() const;
  /// Waits until there is none; false after `patience`.
  bool waitUntilNoneIsLeft(std::chrono::milliseconds patience) const;

 private:
  std::string variable_;
};

/// Waits until the process is gone (or a zombie); false after `patience`.
bool waitUntilDead(pid_t pid, std::chrono::milliseconds patience);

/// Descriptors that a process has open.
size_t openDescriptors(pid_t pid);
/// Those whose file, or memory object, has this in its name.
size_t descriptorsCalled(pid_t pid, const std::string& name);

}  // namespace isopool::tests
