// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

namespace isopool::tests {

/// A forked process that is led through a piece of its code one machine instruction at a time, and
/// killed. It does `prepare`, waits at the first instruction of `act`, and has nothing to do behind
/// it.
class SteppedProcess {
 public:
  /// Throws SystemCallError if this machine lets nobody trace its children.
  SteppedProcess(const std::function<void()>& prepare, const std::function<void()>& act);
  /// Kills it.
  ~SteppedProcess();
  SteppedProcess(const SteppedProcess&) = delete;
  SteppedProcess& operator=(const SteppedProcess&) = delete;

  /// Executes up to `count` instructions of `act`; returns how many there were.
  uint64_t step(uint64_t count);
  /// SIGKILL, and waits until nothing of it is left.
  void kill();

 private:
  void oneStep();
  void stepTo(uintptr_t address);
  [[noreturn]] void fail(int status) const;

  pid_t pid_ = -1;
};

/// Why no process can be traced here; empty if one can.
std::string whyNoneCanBeStepped();

}  // namespace isopool::tests
