// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

namespace isopool::tests {

/// A forked process that is single-stepped through a piece of its code and then killed. It runs
/// `prepare`, waits at the first instruction of `act`, and does nothing after it.
class SteppedProcess {
 public:
  /// Throws SystemCallError if a process may not trace its children here.
  SteppedProcess(const std::function<void()>& prepare, const std::function<void()>& act);
  /// Kills the process.
  ~SteppedProcess();
  SteppedProcess(const SteppedProcess&) = delete;
  SteppedProcess& operator=(const SteppedProcess&) = delete;

  /// Executes up to `count` instructions of `act`; returns the number of executed instructions.
  uint64_t step(uint64_t count);
  /// Sends SIGKILL and waits until the process is reaped.
  void kill();

 private:
  void oneStep();
  void stepTo(uintptr_t address);
  [[noreturn]] void fail(int status) const;

  pid_t pid_ = -1;
};

/// The reason why no process can be traced here; empty if one can.
std::string whyNoneCanBeStepped();

}  // namespace isopool::tests
