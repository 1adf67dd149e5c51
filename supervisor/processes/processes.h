// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "supervisor/processes/exit_status.h"
#include "supervisor/processes/peer.h"
#include "supervisor/processes/zygote_process.h"

namespace isopool::supervisor {

/// The interface by which the supervisor starts, kills and inspects processes. isopoold uses
/// KernelProcesses; tests/simulation simulates a table of processes. Not thread-safe. No member
/// waits for a process.
///
/// A child that has ended keeps its pid until reap() or reapOrphan(). So a pid of a child that is
/// not reaped names that child; any other pid may be another process's at any time.
class Processes {
 public:
  virtual ~Processes() = default;

  /// As spawnZygote(). Returns before the program runs: it may end at once.
  virtual pid_t startZygote(const std::string& executable,
                            const std::vector<std::string>& variables, const base::Fd& control,
                            const base::Fd& lifeline, const InheritedLimits& limits) = 0;
  /// True if `pid` is a child of this process that was never opened. To check a pid that another
  /// process has sent.
  virtual bool isNewChild(pid_t pid) = 0;
  /// Returns a pidfd, which becomes readable when the process is dead. Throws base::SystemCallError
  /// if there is no such process.
  virtual base::Fd open(pid_t pid) = 0;
  /// Sends SIGKILL. Does nothing if the process is dead.
  virtual void kill(const base::Fd& pidfd) = 0;
  /// Sends SIGKILL to the process group of `leader`, which must not be reaped, and to the processes
  /// of its control group, if confine() has made one. Does nothing if there is no such group.
  virtual void killGroup(pid_t leader) = 0;
  /// True if confine() makes groups.
  virtual bool hasControlGroups() const = 0;
  /// Puts a worker in which no user code has run into a control group of its own with these limits,
  /// until reap(). 0: no limit. Returns an empty text, or why that was not possible. Any thread,
  /// because it takes 10 to 20 ms.
  virtual std::string confine(pid_t worker, uint64_t memory, uint64_t tasks) = 0;
  /// Ends the group of a worker that was reaped during confine().
  virtual void forgetGroup(pid_t worker) = 0;
  /// Raises the limit of memory of that group, if there is one; never lowers it.
  virtual void allowMemory(pid_t worker, uint64_t bytes) = 0;
  /// Returns how a dead child ended; nothing while a tracer holds it. Does not reap the child: its
  /// pid stays its own.
  virtual std::optional<ExitStatus> exitStatus(const base::Fd& pidfd) = 0;
  /// Reaps a dead child. Then another process may get its pid.
  virtual void reap(const base::Fd& pidfd) = 0;

  /// The state of a child that is not reaped, from the kernel.
  enum class Condition {
    kRuns,
    kStopped,  ///< by a signal, not by a debugger
    kEnds      ///< ending or dead: runs no more instructions of its own
  };
  virtual Condition conditionOf(pid_t child) = 0;
  /// How long a child's main thread has run or waited for a processor; nothing if it is not asleep
  /// now, or the kernel does not say.
  virtual std::optional<std::chrono::nanoseconds> activityOfSleeping(pid_t child) = 0;
  /// A child that a signal has stopped, or continued; 0: none since the last call. Several changes
  /// of one child may count as one. SIGCHLD announces them.
  struct StateChange {
    pid_t child = 0;
    bool stopped = false;
  };
  virtual StateChange nextStateChange() = 0;

  /// Returns the process group of any process; -1 if there is no such process.
  virtual pid_t groupOf(pid_t pid) = 0;

  // For orphans (orphans.h).
  /// All children of this process, including dead ones that are not reaped.
  virtual std::vector<pid_t> children() = 0;
  /// Sends SIGKILL to a child. Returns false if there is no such process.
  virtual bool killOrphan(pid_t pid) = 0;
  /// Returns a child that is dead and not reaped, any of several; 0 if there is none.
  virtual pid_t deadChild() = 0;
  /// Reaps a dead child that has no pidfd here. Does nothing if it is not dead.
  virtual void reapOrphan(pid_t pid) = 0;

  // For clients and reports: processes that are not children, so that they may end and be replaced
  // under the same pid at any time.
  /// As peerOf().
  virtual Peer peer(const base::Fd& socket) = 0;
  /// As supervisor::isPidfdOf().
  virtual bool isPidfdOf(const base::Fd& pidfd, pid_t pid) = 0;
  /// True if the process descends from this one, or if that can't be determined: the process has
  /// ended, /proc hides it although this user may signal it, or there are too many ancestors.
  virtual bool isDescendant(pid_t pid) = 0;
  /// The name of the process's program, which that process can choose.
  virtual std::string programOf(pid_t pid) = 0;
  /// Private memory of the process that is resident, in bytes; 0 if the process has ended.
  virtual uint64_t residentAnonymousBytes(pid_t pid) = 0;
  /// As base::privateMemoryLeft().
  virtual uint64_t privateMemoryLeft(pid_t pid) = 0;
  /// A worker and the processes that its user code has started, see treeOf().
  struct Tree {
    static constexpr uint32_t kMostCounted = 256;  // user code determines how many there are

    uint32_t processes = 0;  ///< that user code has started, and that have not ended
    uint32_t zombies = 0;    ///< that have ended, and for which user code has not waited
    /// Private memory of `processes`, of kMostCounted at most, see base::privateBytes().
    uint64_t bytes = 0;
    /// Private memory of the worker itself: in full if it is alone, else as base::privateBytes().
    uint64_t workerBytes = 0;
    /// What the worker may map as private memory (RLIMIT_DATA); UINT64_MAX: no limit.
    uint64_t limit = UINT64_MAX;
  };
  /// The descendants of a child of this process, and processes of its group whose parent has ended.
  /// Takes microseconds if user code has started no process, else milliseconds for each. Any
  /// thread.
  virtual Tree treeOf(pid_t worker) = 0;
  /// What a process has used and has; zero if it is reaped.
  struct Use {
    base::Milliseconds processorTime{0};
    uint32_t threads = 0;
  };
  virtual Use useOf(pid_t pid) = 0;
  /// Descriptors that the supervisor itself has open.
  virtual uint64_t openDescriptors() = 0;
};

}  // namespace isopool::supervisor
