// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/kernel_processes.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/memory_limits.h"
#include "base/process_tree.h"
#include "base/procfs.h"
#include "base/system_call.h"

namespace isopool::supervisor {

namespace {

constexpr auto kAnyPidfd = static_cast<idtype_t>(3);  // P_PIDFD, which C libraries may lack

ExitStatus toExitStatus(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {.exitCode = info.si_status};
  return {.signal = info.si_status};
}

}  // namespace

KernelProcesses::KernelProcesses() : explained_(base::memoryKills()) {}

KernelProcesses::KernelProcesses(const base::Fd& output)
    : output_(&output), explained_(base::memoryKills()) {}

pid_t KernelProcesses::startZygote(const std::string& executable,
                                   const std::vector<std::string>& variables,
                                   const base::Fd& control, const base::Fd& lifeline,
                                   const InheritedLimits& limits) {
  return spawnZygote(executable, variables, control, lifeline, output_, limits);
}

bool KernelProcesses::isNewChild(pid_t pid) {
  siginfo_t info{};
  return pid > 0 && opened_.count(pid) == 0 &&
         ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

base::Fd KernelProcesses::open(pid_t pid) {
  base::Fd pidfd(base::checkSystemCall(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)),
                                       "pidfd_open", pid));
  opened_.insert(pid);
  return pidfd;
}

void KernelProcesses::kill(const base::Fd& pidfd) {
  ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
}

void KernelProcesses::killGroup(pid_t leader) {
  ::kill(-leader, SIGKILL);
  if (groups_) groups_->kill(leader);
}

std::string KernelProcesses::makeControlGroups(bool successor) {
  try {
    groups_.emplace("", successor);
  } catch (const std::exception& error) {
    return error.what();
  }
  explained_ = memoryKills();
  return {};
}

std::string KernelProcesses::confine(pid_t worker, uint64_t memory, uint64_t tasks) {
  return groups_ ? groups_->confine(worker, {memory, tasks}) : std::string();
}

void KernelProcesses::forgetGroup(pid_t worker) {
  if (groups_) groups_->remove(worker);
}

void KernelProcesses::allowMemory(pid_t worker, uint64_t bytes) {
  if (groups_) groups_->allowMemory(worker, bytes);
}

std::optional<ExitStatus> KernelProcesses::exitStatus(const base::Fd& pidfd) {
  siginfo_t info{};
  const int result =
      ::waitid(kAnyPidfd, static_cast<id_t>(pidfd.get()), &info, WEXITED | WNOHANG | WNOWAIT);
  if (result != 0 || info.si_pid == 0) return std::nullopt;
  ExitStatus status = toExitStatus(info);
  if (status.signal != SIGKILL) return status;
  // With the worker the kernel has killed all processes of its group.
  const uint64_t ofGroup = groups_ ? groups_->memoryKills(info.si_pid) : 0;
  status.killedForOwnLimit = ofGroup > 0;
  if (explained_) *explained_ += ofGroup;
  status.killedForMemory = ofGroup > 0 ? true : killedForMemory();
  return status;
}

std::optional<uint64_t> KernelProcesses::memoryKills() const {
  const std::optional<uint64_t> ofGroups = groups_ ? groups_->allMemoryKills() : std::nullopt;
  return ofGroups ? ofGroups : base::memoryKills();
}

// The kernel does not tell why it sends SIGKILL to a process. It counts first, so a kill that is
// not counted was another process's.
std::optional<bool> KernelProcesses::killedForMemory() {
  const std::optional<uint64_t> kills = memoryKills();
  if (!kills || !explained_) return std::nullopt;
  if (*kills <= *explained_) return false;
  ++*explained_;
  return true;
}

void KernelProcesses::reap(const base::Fd& pidfd) {
  siginfo_t info{};
  ::waitid(kAnyPidfd, static_cast<id_t>(pidfd.get()), &info, WEXITED | WNOHANG);
  opened_.erase(info.si_pid);
  if (groups_) groups_->remove(info.si_pid);
}

Processes::Condition KernelProcesses::conditionOf(pid_t child) {
  constexpr unsigned kExiting = 0x4;  // PF_EXITING, set at the beginning of a process's end
  const base::ProcessStatus status = base::statusOf(child);
  if (status.state == 'Z' || status.state == 'X' || (status.flags & kExiting) != 0) {
    return Condition::kEnds;
  }
  return status.state == 'T' ? Condition::kStopped : Condition::kRuns;
}

std::optional<std::chrono::nanoseconds> KernelProcesses::activityOfSleeping(pid_t child) {
  if (base::statusOf(child).state != 'S') return std::nullopt;
  // Documentation/scheduler/sched-stats.rst: the time on a processor, and that in its queue, in ns.
  std::ifstream file("/proc/" + std::to_string(child) + "/schedstat");
  int64_t ran = 0;
  int64_t waited = 0;
  if (!(file >> ran >> waited)) return std::nullopt;
  return std::chrono::nanoseconds(ran + waited);
}

Processes::StateChange KernelProcesses::nextStateChange() {
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WSTOPPED | WCONTINUED | WNOHANG) != 0) return {};
  return {info.si_pid, info.si_code == CLD_STOPPED};
}

std::vector<pid_t> KernelProcesses::children() { return base::childrenOf(::getpid()); }

pid_t KernelProcesses::groupOf(pid_t pid) { return ::getpgid(pid); }

bool KernelProcesses::killOrphan(pid_t pid) { return ::kill(pid, SIGKILL) == 0; }

pid_t KernelProcesses::deadChild() {
  // Called when a child has ended: it may have been the last process of its group.
  if (groups_) groups_->removeEmpty();
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return 0;
  return info.si_pid;
}

void KernelProcesses::reapOrphan(pid_t pid) {
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
}

Peer KernelProcesses::peer(const base::Fd& socket) { return peerOf(socket); }

// Follows the parents from `pid` upwards. A descendant whose parent has died is our child, because
// this process is the subreaper. User code controls how many processes lie between, and when they
// end.
bool KernelProcesses::isDescendant(pid_t pid) {
  constexpr int kMostLookUps = 1000;
  const pid_t self = ::getpid();
  pid_t ancestor = pid;
  for (int i = 0; i < kMostLookUps; ++i) {
    if (ancestor <= 1) return false;
    const base::ProcessStatus status = base::statusOf(ancestor);
    if (status.state != 0) {
      if (status.parent == self) return true;
      ancestor = status.parent;
      continue;
    }
    const int error = ::kill(ancestor, 0) == 0 ? 0 : errno;
    // Another user's process, hidden in /proc (hidepid=): a strict worker can't change its user.
    if (error == EPERM) return false;
    if (error != ESRCH || ancestor == pid) return true;
    // The ancestor ended after it was found, so its child has another parent now: start again.
    ancestor = pid;
  }
  return true;
}

bool KernelProcesses::isPidfdOf(const base::Fd& pidfd, pid_t pid) {
  return supervisor::isPidfdOf(pidfd, pid);
}

std::string KernelProcesses::programOf(pid_t pid) { return base::programOf(pid); }

uint64_t KernelProcesses::residentAnonymousBytes(pid_t pid) {
  return base::residentAnonymousBytes(pid);
}

uint64_t KernelProcesses::privateMemoryLeft(pid_t pid) { return base::privateMemoryLeft(pid); }

Processes::Tree KernelProcesses::treeOf(pid_t worker) {
  std::vector<pid_t> roots{worker};
  for (const pid_t child : children()) {
    if (child != worker && groupOf(child) == worker) roots.push_back(child);
  }
  const base::Descendants found = base::descendantsOf(roots, worker, Tree::kMostCounted);
  Tree tree;
  tree.processes = static_cast<uint32_t>(found.living.size()) + found.further;
  tree.zombies = found.ended;
  tree.limit = base::privateMemoryLimit(worker);
  for (const pid_t pid : found.living) tree.bytes += base::privateBytes(pid);
  tree.workerBytes =
      found.living.empty() ? base::privateBytesAtMost(worker) : base::privateBytes(worker);
  return tree;
}

Processes::Use KernelProcesses::useOf(pid_t pid) {
  const base::ProcessStatus status = base::statusOf(pid);
  return {status.processorTime, status.threads};
}

uint64_t KernelProcesses::openDescriptors() { return base::openDescriptors(); }

}  // namespace isopool::supervisor
