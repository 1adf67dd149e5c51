// SPDX-License-Identifier: BSD-3-Clause
// Stops processes, as a debugger, a freezer or an overloaded machine does.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>

#include "base/fd.h"
#include "chaos/nemesis/nemesis.h"

namespace chaos {

void Nemesis::stop(const Attack& attack, pid_t victim) {
  const auto pidfd =
      std::make_shared<isopool::base::Fd>(static_cast<int>(::syscall(SYS_pidfd_open, victim, 0)));
  if (!pidfd->valid() || !target_.owns(victim)) return;
  // A stopped worker or zygote may be killed after a second; programs and supervisors may not.
  if (attack.victim == Role::kWorker || attack.victim == Role::kZygote) {
    target_.attacks().note(victim);
  }
  if (::syscall(SYS_pidfd_send_signal, pidfd->get(), SIGSTOP, nullptr, 0) != 0) return;
  const auto from = std::chrono::steady_clock::now();
  stopped_[victim] = from + attack.length;
  target_.excuse(attack.length);
  const bool worker = attack.victim == Role::kWorker;
  later(attack.length, [this, pidfd, victim, worker, from] {
    stopped_.erase(victim);
    ::syscall(SYS_pidfd_send_signal, pidfd->get(), SIGCONT, nullptr, 0);
    // Only now the process notices what happened to the others.
    if (!worker) noteDisturbance(from, std::chrono::steady_clock::now());
  });
  ++counts_.byFamily[static_cast<size_t>(attack.family)];
}

}  // namespace chaos
