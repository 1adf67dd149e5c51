// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

#include "base/fd.h"
#include "base/loop/readiness_watch.h"
#include "base/loop/time_limit.h"
#include "base/loop/timer.h"
#include "supervisor/processes/exit_status.h"
#include "supervisor/processes/processes.h"

namespace isopool::supervisor {

/// A child process of the supervisor. Only this object reaps it, so that the pid can't be another
/// process's before. When the child has ended, this kills its process group, reaps it and calls
/// `reaped`, which may destroy this object. If a debugger does not release the child within about
/// five seconds, `reaped` gets SIGKILL as the status. Not thread-safe: used on the loop's thread.
/// No member blocks.
///
/// The destructor neither kills nor reaps the child.
class ChildProcess {
 public:
  /// Called once, from the loop, never from the constructor or from kill().
  using Reaped = std::function<void(ExitStatus)>;

  /// `pid` must be a child that leads its own process group. Throws base::SystemCallError if there
  /// is no such process, or no free descriptor.
  ChildProcess(base::EventLoop& loop, Processes& processes, pid_t pid, Reaped reaped);

  pid_t pid() const { return pid_; }
  /// Readable when the child has ended. This object owns it.
  const base::Fd& pidfd() const { return pidfd_; }

  /// Sends SIGKILL to the process and to its group; `reaped` follows. Does nothing if it is reaped.
  void kill();
  /// The same after 100 ms: if the process is ending by itself, its own exit status is kept.
  void killSoon();

 private:
  void reap();

  Processes& processes_;
  const pid_t pid_;
  const base::Fd pidfd_;
  Reaped reaped_;
  std::optional<base::ReadinessWatch> watch_;
  base::Timer retry_;
  base::TimeLimit mercy_;
  int retries_ = 0;
};

}  // namespace isopool::supervisor
