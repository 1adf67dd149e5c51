// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "supervisor/processes/processes.h"
#include "tests/simulation/world.h"

namespace isopool::simulation {

/// What runs in a simulated process.
class Program : public Actor {
 public:
  /// The kernel tears the process down: all that it held is closed. It does not act any more.
  virtual void die() = 0;
};

/// What goes wrong in this run, and what the tests plant.
struct Misfortunes {
  // Once in so many steps of the kind; 0: never.
  uint64_t workerDies = 0;
  uint64_t workerFailsToStart = 0;
  uint64_t workerSendsNonsense = 0;
  uint64_t zygoteDies = 0;
  uint64_t zygoteRefuses = 0;
  uint64_t clientDies = 0;
  uint64_t clientSendsNonsense = 0;
  uint64_t clientReportsTheLiving = 0;
  uint64_t neverAZygote = 0;
  // Planted faults: a simulation that does not find them finds nothing.
  bool clientForgetsAssignments = false;
  bool clientRepeatsLostCalls = false;
  bool workerRunsRecalledCalls = false;
};

/// The processes of a world: pids, parents, deaths in two steps (what it held is closed, later its
/// pidfd tells), reaping. A pidfd is the read end of a pipe whose other end is the process.
class ProcessTable final : public supervisor::Processes {
 public:
  using MakeZygote =
      std::function<std::unique_ptr<Program>(pid_t, base::Fd control, base::Fd lifeline)>;

  ProcessTable(World& world, const Misfortunes& misfortunes);
  ~ProcessTable() override;

  /// `childDied`: a child of the supervisor was.
  void begin(MakeZygote makeZygote, std::function<void()> childDied);
  /// A new process runs `makeProgram(pid)`. `group`: 0 for one of its own.
  pid_t start(const std::function<std::unique_ptr<Program>(pid_t)>& makeProgram, bool child);
  /// It dies, of a signal or by itself, as soon as that gets through.
  void end(pid_t pid, supervisor::ExitStatus status);
  bool alive(pid_t pid) const;
  bool reaped(pid_t pid) const { return processes_.count(pid) == 0; }
  size_t running() const;
  /// The pid of an open process; 0 if it is none.
  pid_t pidOf(const base::Fd& pidfd) const;
  /// It may have something to look at.
  void rouse(pid_t pid);
  /// Who connects next.
  void connects(pid_t client) { connecting_.push_back(client); }
  /// The supervisor was told of this child: it is no orphan.
  void announced(pid_t pid) { announced_[pid] = true; }

  pid_t startZygote(const std::string& executable, const std::vector<std::string>& variables,
                    const base::Fd& control, const base::Fd& lifeline,
                    const supervisor::InheritedLimits& limits) override;
  bool isNewChild(pid_t pid) override;
  base::Fd open(pid_t pid) override;
  void kill(const base::Fd& pidfd) override;
  void killGroup(pid_t leader) override;
  std::optional<supervisor::ExitStatus> exitStatus(const base::Fd& pidfd) override;
  void reap(const base::Fd& pidfd) override;
  Condition conditionOf(pid_t child) override;
  std::vector<pid_t> children() override;
  pid_t groupOf(pid_t pid) override;
  bool killOrphan(pid_t pid) override;
  pid_t deadChild() override;
  void reapOrphan(pid_t pid) override;
  supervisor::Peer peer(const base::Fd& socket) override;
  bool isPidfdOf(const base::Fd& pidfd, pid_t pid) override;
  bool isDescendant(pid_t) override { return false; }  // programs are started by others
  std::string programOf(pid_t pid) override;
  uint64_t residentAnonymousBytes(pid_t pid) override;

 private:
  struct Process {
    std::unique_ptr<Program> program;
    base::Fd pidfd;
    base::Fd life;  ///< the write end: closed at death
    uint64_t inode = 0;
    bool child = false;  ///< of the supervisor
    bool condemned = false;
    bool tornDown = false;
    bool dead = false;
    bool opened = false;
    int reapedInVain = 0;  ///< a tracer has not let go of it yet
    supervisor::ExitStatus status;
  };

  void tearDown(pid_t pid);
  void pidfdTells(pid_t pid);

  World& world_;
  const Misfortunes& misfortunes_;
  MakeZygote makeZygote_;
  std::function<void()> childDied_;
  std::map<pid_t, Process> processes_;
  std::map<pid_t, bool> announced_;
  std::deque<pid_t> connecting_;
  pid_t last_ = 100;
};

}  // namespace isopool::simulation
