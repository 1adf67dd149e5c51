// SPDX-License-Identifier: BSD-3-Clause
// Kills processes. Waits for each death: only a process that is gone counts as killed.
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/fd.h"
#include "chaos/nemesis/nemesis.h"

namespace chaos {

namespace {
constexpr int kPatience = 5000;  // ms
}

void Nemesis::kill(const Attack& attack, pid_t victim, int signal) {
  const isopool::base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, victim, 0)));
  if (!pidfd.valid() || !target_.owns(victim)) return;
  const ProcessStatus before = statusOf(victim);
  if (!before.alive()) return;
  // Notes the attack before the kill, so that a thread that sees the death finds the note. A
  // supervisor ends with its first zygote.
  target_.attacks().note(victim);
  const std::vector<Member> members = target_.members();
  // A zygote ends when the process dies by which it forks a worker.
  const bool forks = std::any_of(members.begin(), members.end(), [&](const Member& member) {
    return member.id.pid == victim && member.ofZygote;
  });
  if (forks || (attack.victim != Role::kWorker && attack.victim != Role::kProgram)) {
    const auto now = std::chrono::steady_clock::now();
    noteDisturbance(now, now);
  }
  const bool hasWorkers =
      std::any_of(members.begin(), members.end(), std::mem_fn(&Member::isWholeWorker));
  const bool withAll = attack.victim == Role::kSupervisor || attack.victim == Role::kGuardian ||
                       (attack.victim == Role::kProgram && !target_.plan().shared) ||
                       (attack.victim == Role::kZygote && !hasWorkers);
  for (const Member& member : withAll ? members : std::vector<Member>()) {
    const bool program = member.role == Role::kProgram;
    if (!program) target_.attacks().note(member.id.pid);
  }
  if (::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) != 0) return;
  // A signal other than SIGKILL stays pending while the process is stopped: continues it.
  if (stopped_.count(victim) != 0)
    ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGCONT, nullptr, 0);
  pollfd death{pidfd.get(), POLLIN, 0};
  if (::poll(&death, 1, kPatience * target_.plan().slowness) != 1) {
    findings_.add(Fault::kHung, target_.plan().name + ": process " + std::to_string(victim) +
                                    " lives on after " + describe(attack));
    return;
  }
  ++counts_.byFamily[static_cast<size_t>(attack.family)];
  ++(target_.plan().plain ? counts_.plainKills : counts_.realKills);
}

}  // namespace chaos
