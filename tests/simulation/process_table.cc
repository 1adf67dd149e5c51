// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/process_table.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/system_call.h"

namespace isopool::simulation {

using supervisor::ExitStatus;

namespace {

uint64_t inodeOf(const base::Fd& descriptor) {
  struct stat status {};
  return ::fstat(descriptor.get(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

ProcessTable::ProcessTable(World& world, const Misfortunes& misfortunes)
    : world_(world), misfortunes_(misfortunes) {}

ProcessTable::~ProcessTable() = default;

void ProcessTable::begin(MakeZygote makeZygote, std::function<void()> childDied) {
  makeZygote_ = std::move(makeZygote);
  childDied_ = std::move(childDied);
}

pid_t ProcessTable::start(const std::function<std::unique_ptr<Program>(pid_t)>& makeProgram,
                          bool child) {
  const pid_t pid = ++last_;
  int ends[2];
  base::checkSystemCall(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), "pipe2");
  Process& process = processes_[pid];
  process.pidfd = base::Fd(ends[0]);
  process.life = base::Fd(ends[1]);
  process.inode = inodeOf(process.pidfd);
  process.child = child;
  if (world_.misfortune(20)) process.reapedInVain = static_cast<int>(world_.chance.between(1, 5));
  process.program = makeProgram(pid);
  world_.add(*process.program);
  world_.note("started", static_cast<uint64_t>(pid));
  return pid;
}

void ProcessTable::end(pid_t pid, ExitStatus status) {
  const auto found = processes_.find(pid);
  if (found == processes_.end() || std::exchange(found->second.condemned, true)) return;
  found->second.status = status;
  world_.note("condemned", static_cast<uint64_t>(pid));
  // A process that exits by itself does nothing more; a signal takes effect later.
  if (status.signal == 0) return tearDown(pid);
  world_.after(world_.latency() / 10, [this, pid] { tearDown(pid); });
}

void ProcessTable::tearDown(pid_t pid) {
  Process& process = processes_.at(pid);
  world_.note("torn down", static_cast<uint64_t>(pid));
  process.tornDown = true;
  process.program->die();
  world_.remove(*process.program);
  world_.after(world_.latency(), [this, pid] { pidfdTells(pid); });
}

void ProcessTable::pidfdTells(pid_t pid) {
  Process& process = processes_.at(pid);
  process.dead = true;
  process.life.close();
  world_.note("dead", static_cast<uint64_t>(pid));
  if (process.child) {
    if (childDied_) childDied_();
  } else {
    processes_.erase(pid);
  }
}

bool ProcessTable::alive(pid_t pid) const {
  const auto found = processes_.find(pid);
  return found != processes_.end() && !found->second.condemned;
}

size_t ProcessTable::running() const {
  return static_cast<size_t>(std::count_if(processes_.begin(), processes_.end(),
                                           [](const auto& each) { return !each.second.dead; }));
}

void ProcessTable::rouse(pid_t pid) {
  const auto found = processes_.find(pid);
  if (found == processes_.end() || found->second.condemned) return;
  Program& program = *found->second.program;
  if (!program.roused()) program.rouse(world_.now() + world_.latency());
}

pid_t ProcessTable::pidOf(const base::Fd& pidfd) const {
  const uint64_t inode = inodeOf(pidfd);
  for (const auto& [pid, process] : processes_) {
    if (process.inode == inode) return pid;
  }
  return 0;
}

pid_t ProcessTable::startZygote(const std::string&, const std::vector<std::string>&,
                                const base::Fd& control, const base::Fd& lifeline,
                                const supervisor::InheritedLimits&) {
  return start(
      [&](pid_t pid) { return makeZygote_(pid, control.duplicate(), lifeline.duplicate()); },
      /*child=*/true);
}

bool ProcessTable::isNewChild(pid_t pid) {
  const auto found = processes_.find(pid);
  return found != processes_.end() && found->second.child && !found->second.opened;
}

base::Fd ProcessTable::open(pid_t pid) {
  const auto found = processes_.find(pid);
  if (found == processes_.end()) throw base::SystemCallError("pidfd_open", "", ESRCH);
  found->second.opened = true;
  return found->second.pidfd.duplicate();
}

void ProcessTable::kill(const base::Fd& pidfd) {
  if (const pid_t pid = pidOf(pidfd)) end(pid, {.signal = SIGKILL});
}

void ProcessTable::killGroup(pid_t leader) {
  if (reaped(leader)) {
    world_.violated("the group of process " + std::to_string(leader) +
                    " was killed after it was reaped: the number may be another's");
  }
  end(leader, {.signal = SIGKILL});
}

std::optional<ExitStatus> ProcessTable::exitStatus(const base::Fd& pidfd) {
  const auto found = processes_.find(pidOf(pidfd));
  if (found == processes_.end() || !found->second.dead || found->second.reapedInVain-- > 0) {
    return std::nullopt;
  }
  return found->second.status;
}

void ProcessTable::reap(const base::Fd& pidfd) {
  const pid_t pid = pidOf(pidfd);
  world_.note("reaped", static_cast<uint64_t>(pid));
  processes_.erase(pid);
}

supervisor::Processes::Condition ProcessTable::conditionOf(pid_t child) {
  const auto found = processes_.find(child);
  return found == processes_.end() || found->second.tornDown ? Condition::kEnds : Condition::kRuns;
}

std::vector<pid_t> ProcessTable::children() {
  std::vector<pid_t> pids;
  for (const auto& [pid, process] : processes_) {
    if (process.child) pids.push_back(pid);
  }
  return pids;
}

pid_t ProcessTable::groupOf(pid_t pid) { return pid; }

bool ProcessTable::killOrphan(pid_t pid) {
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return false;
  if (alive(pid) && announced_.count(pid) != 0) {
    world_.violated("process " + std::to_string(pid) +
                    " was killed as an orphan although the zygote had announced it");
  }
  end(pid, {.signal = SIGKILL});
  return true;
}

pid_t ProcessTable::deadChild() {
  for (const auto& [pid, process] : processes_) {
    if (process.child && process.dead) return pid;
  }
  return 0;
}

void ProcessTable::reapOrphan(pid_t pid) { processes_.erase(pid); }

supervisor::Peer ProcessTable::peer(const base::Fd&) {
  supervisor::Peer peer{.userId = ::geteuid(), .groupId = ::getegid()};
  if (!connecting_.empty()) {
    peer.processId = connecting_.front();
    connecting_.pop_front();
  }
  return peer;
}

bool ProcessTable::isPidfdOf(const base::Fd& pidfd, pid_t pid) {
  // A process that died meanwhile is no longer in the table.
  return reaped(pid) || pidOf(pidfd) == pid;
}

std::string ProcessTable::programOf(pid_t) { return "simulated"; }

uint64_t ProcessTable::residentAnonymousBytes(pid_t) { return world_.chance.below(64u << 20); }

uint64_t ProcessTable::privateMemoryLeft(pid_t) { return world_.chance.below(512u << 20); }

// Simulated workers run no user code.
supervisor::Processes::Tree ProcessTable::treeOf(pid_t) { return {}; }

supervisor::Processes::Use ProcessTable::useOf(pid_t) { return {base::Milliseconds(0), 1}; }

uint64_t ProcessTable::openDescriptors() { return 0; }

}  // namespace isopool::simulation
