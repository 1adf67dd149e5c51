// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "supervisor/processes/processes.h"
#include "supervisor/processes/worker_control_groups.h"

namespace isopool::supervisor {

/// Processes of the kernel: the implementation that isopoold uses, by pidfds, waitid(2) and /proc.
/// One per process: it notes the children that it has opened, for isNewChild().
class KernelProcesses final : public Processes {
 public:
  /// Zygotes get this process's standard streams.
  KernelProcesses();
  /// Zygotes get `output`, which must outlive this object, as standard output and error stream.
  explicit KernelProcesses(const base::Fd& output);

  /// From now on each worker gets a control group of its own; see WorkerControlGroups. Returns an
  /// empty text, or why that is not possible. Call it before any process is started.
  /// `successor`: another supervisor of the same guardian has made the groups.
  std::string makeControlGroups(bool successor);

  pid_t startZygote(const std::string& executable, const std::vector<std::string>& variables,
                    const base::Fd& control, const base::Fd& lifeline,
                    const InheritedLimits& limits) override;
  bool isNewChild(pid_t pid) override;
  base::Fd open(pid_t pid) override;
  void kill(const base::Fd& pidfd) override;
  void killGroup(pid_t leader) override;
  bool hasControlGroups() const override { return groups_.has_value(); }
  std::string confine(pid_t worker, uint64_t memory, uint64_t tasks) override;
  void forgetGroup(pid_t worker) override;
  void allowMemory(pid_t worker, uint64_t bytes) override;
  std::optional<ExitStatus> exitStatus(const base::Fd& pidfd) override;
  void reap(const base::Fd& pidfd) override;
  Condition conditionOf(pid_t child) override;
  std::optional<std::chrono::nanoseconds> activityOfSleeping(pid_t child) override;
  StateChange nextStateChange() override;

  std::vector<pid_t> children() override;
  pid_t groupOf(pid_t pid) override;
  bool killOrphan(pid_t pid) override;
  pid_t deadChild() override;
  void reapOrphan(pid_t pid) override;

  Peer peer(const base::Fd& socket) override;
  bool isPidfdOf(const base::Fd& pidfd, pid_t pid) override;
  bool isDescendant(pid_t pid) override;
  std::string programOf(pid_t pid) override;
  uint64_t residentAnonymousBytes(pid_t pid) override;
  uint64_t privateMemoryLeft(pid_t pid) override;
  Tree treeOf(pid_t worker) override;
  Use useOf(pid_t pid) override;
  uint64_t openDescriptors() override;

 private:
  std::optional<uint64_t> memoryKills() const;
  std::optional<bool> killedForMemory();

  const base::Fd* output_ = nullptr;
  std::optional<WorkerControlGroups> groups_;
  /// How many of memoryKills() are older than this object, or explain the end of a process.
  std::optional<uint64_t> explained_;
  std::set<pid_t> opened_;  ///< pids that were opened and are not reaped
};

}  // namespace isopool::supervisor
