// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

#include "base/fd.h"
#include "base/loop/readiness_watch.h"
#include "base/loop/timer.h"
#include "supervisor/processes/exit_status.h"
#include "supervisor/processes/processes.h"

namespace isopool::supervisor {

/// A child of the supervisor. Holds the pid until it is reaped here, so that the number can't mean
/// another process meanwhile. When it has ended its process group is killed and `reaped` is called,
/// which may destroy this object.
class ChildProcess {
 public:
  using Reaped = std::function<void(ExitStatus)>;

  /// Throws base::SystemCallError if there is no such process.
  ChildProcess(base::EventLoop& loop, Processes& processes, pid_t pid, Reaped reaped);

  pid_t pid() const { return pid_; }
  const base::Fd& pidfd() const { return pidfd_; }

  /// SIGKILL to the process and to its group. Nothing happens if it is dead.
  void kill();
  /// The same a little later: the process is probably ending, and its own exit status tells more.
  void killSoon();

 private:
  void reap();

  Processes& processes_;
  const pid_t pid_;
  const base::Fd pidfd_;
  Reaped reaped_;
  std::optional<base::ReadinessWatch> watch_;
  base::Timer retry_;
  base::Timer mercy_;
  int retries_ = 0;
};

}  // namespace isopool::supervisor
