// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "supervisor/processes/exit_status.h"
#include "supervisor/processes/peer.h"
#include "supervisor/processes/zygote_process.h"

namespace isopool::supervisor {

/// All that the supervisor does to processes and knows of them. KernelProcesses is the one that is
/// shipped; tests/simulation has a table of its own.
class Processes {
 public:
  virtual ~Processes() = default;

  /// As spawnZygote().
  virtual pid_t startZygote(const std::string& executable,
                            const std::vector<std::string>& variables, const base::Fd& control,
                            const base::Fd& lifeline, const InheritedLimits& limits) = 0;
  /// True if it is a child of this process that has never been opened: a pid that another process
  /// names may be anybody's.
  virtual bool isNewChild(pid_t pid) = 0;
  /// A pidfd: readable when the process is dead. Throws base::SystemCallError if there is none.
  virtual base::Fd open(pid_t pid) = 0;
  /// SIGKILL. Nothing happens if it is dead.
  virtual void kill(const base::Fd& pidfd) = 0;
  virtual void killGroup(pid_t leader) = 0;
  /// How a dead child ended; nothing while a tracer has not let go of it. It is not reaped: its
  /// number is still its own.
  virtual std::optional<ExitStatus> exitStatus(const base::Fd& pidfd) = 0;
  /// Reaps a dead child. Then its number may become another's.
  virtual void reap(const base::Fd& pidfd) = 0;

  /// What the kernel says of a child that is not reaped.
  enum class Condition {
    kRuns,
    kStopped,  ///< by a signal, not by a debugger
    kEnds      ///< or has ended: it runs no instruction of its own any more
  };
  virtual Condition conditionOf(pid_t child) = 0;

  // For what is left over (orphans.h).
  /// All children of this process, dead ones that are not reaped included.
  virtual std::vector<pid_t> children() = 0;
  virtual pid_t groupOf(pid_t pid) = 0;
  /// SIGKILL; false if there is no such process.
  virtual bool killOrphan(pid_t pid) = 0;
  /// One child that is dead and not reaped; 0 if there is none.
  virtual pid_t deadChild() = 0;
  virtual void reapOrphan(pid_t pid) = 0;

  // For clients and figures.
  /// As peerOf().
  virtual Peer peer(const base::Fd& socket) = 0;
  virtual bool isPidfdOf(const base::Fd& pidfd, pid_t pid) = 0;
  /// True if this process started it, however many processes lie between, or if nobody can tell: it
  /// has ended, /proc hides it, or too many lie between.
  virtual bool isDescendant(pid_t pid) = 0;
  virtual std::string programOf(pid_t pid) = 0;
  virtual uint64_t residentAnonymousBytes(pid_t pid) = 0;
};

}  // namespace isopool::supervisor
