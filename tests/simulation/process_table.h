// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "supervisor/processes/processes.h"
#include "tests/simulation/world.h"

namespace isopool::simulation {

/// The program of a simulated process.
class Program : public Actor {
 public:
  /// The kernel tears the process down: closes all that it held. It does not act any more.
  virtual void die() = 0;
};

/// The failures of this run, and the faults that tests plant.
struct Misfortunes {
  // Each happens once in so many steps of its kind; 0: never.
  uint64_t workerDies = 0;
  uint64_t workerFailsToStart = 0;
  uint64_t workerSendsNonsense = 0;
  uint64_t zygoteDies = 0;
  uint64_t zygoteRefuses = 0;
  uint64_t clientDies = 0;
  uint64_t clientSendsNonsense = 0;
  uint64_t clientReportsTheLiving = 0;
  uint64_t neverAZygote = 0;
  // Planted faults: finding them shows that the simulation can find faults.
  bool clientForgetsAssignments = false;
  bool clientRepeatsLostCalls = false;
  bool workerRunsRecalledCalls = false;
};

/// The processes of a world: pids, parents, deaths, reaping. A death has two steps: the process's
/// descriptors are closed, and later its pidfd becomes readable. A pidfd is the read end of a pipe
/// whose write end belongs to the process.
class ProcessTable final : public supervisor::Processes {
 public:
  using MakeZygote =
      std::function<std::unique_ptr<Program>(pid_t, base::Fd control, base::Fd lifeline)>;

  ProcessTable(World& world, const Misfortunes& misfortunes);
  ~ProcessTable() override;

  /// `childDied` is called when a child of the supervisor has died.
  void begin(MakeZygote makeZygote, std::function<void()> childDied);
  /// Starts a process that runs `makeProgram(pid)`. `child`: of the supervisor.
  pid_t start(const std::function<std::unique_ptr<Program>(pid_t)>& makeProgram, bool child);
  /// Ends the process. It dies at once if it exits, or a while later if a signal ends it.
  void end(pid_t pid, supervisor::ExitStatus status);
  bool alive(pid_t pid) const;
  bool reaped(pid_t pid) const { return processes_.count(pid) == 0; }
  size_t running() const;
  /// The pid of the process of a pidfd; 0 if the descriptor is not a pidfd of the table.
  pid_t pidOf(const base::Fd& pidfd) const;
  /// Wakes the process: it may have a message or a call to read.
  void rouse(pid_t pid);
  /// Sets the process that connects to the supervisor next.
  void connects(pid_t client) { connecting_.push_back(client); }
  /// The supervisor was notified of this child, so it is not an orphan.
  void announced(pid_t pid) { announced_[pid] = true; }

  pid_t startZygote(const std::string& executable, const std::vector<std::string>& variables,
                    const base::Fd& control, const base::Fd& lifeline,
                    const supervisor::InheritedLimits& limits) override;
  bool isNewChild(pid_t pid) override;
  base::Fd open(pid_t pid) override;
  void kill(const base::Fd& pidfd) override;
  void killGroup(pid_t leader) override;
  bool hasControlGroups() const override { return false; }
  std::string confine(pid_t, uint64_t, uint64_t) override { return {}; }
  void forgetGroup(pid_t) override {}
  void allowMemory(pid_t, uint64_t) override {}
  std::optional<supervisor::ExitStatus> exitStatus(const base::Fd& pidfd) override;
  void reap(const base::Fd& pidfd) override;
  Condition conditionOf(pid_t child) override;
  std::optional<std::chrono::nanoseconds> activityOfSleeping(pid_t) override {
    return std::nullopt;
  }
  StateChange nextStateChange() override { return {}; }  // no signal stops a simulated process
  std::vector<pid_t> children() override;
  pid_t groupOf(pid_t pid) override;
  bool killOrphan(pid_t pid) override;
  pid_t deadChild() override;
  void reapOrphan(pid_t pid) override;
  supervisor::Peer peer(const base::Fd& socket) override;
  bool isPidfdOf(const base::Fd& pidfd, pid_t pid) override;
  bool isDescendant(pid_t) override { return false; }  // the supervisor starts no client program
  std::string programOf(pid_t pid) override;
  uint64_t residentAnonymousBytes(pid_t pid) override;
  uint64_t privateMemoryLeft(pid_t pid) override;
  Tree treeOf(pid_t worker) override;
  Use useOf(pid_t pid) override;
  uint64_t openDescriptors() override;

 private:
  struct Process {
    std::unique_ptr<Program> program;
    base::Fd pidfd;
    base::Fd life;  ///< the write end of the pidfd's pipe: closed at death
    uint64_t inode = 0;
    bool child = false;  ///< of the supervisor
    bool condemned = false;
    bool tornDown = false;
    bool dead = false;
    bool opened = false;
    int reapedInVain = 0;  ///< attempts to reap it while a tracer still holds it
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
