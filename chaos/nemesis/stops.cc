// SPDX-License-Identifier: BSD-3-Clause
// Stops processes, as a debugger, a freezer or an overloaded machine does.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

// No process of the target runs meanwhile, so nothing may be lost: unlike stop(), this excuses no
// death and no failure. Without a control group the processes are stopped and continued by signals,
// one after the other. Returns when the target runs again: no other attack reaches a frozen
// process.
void Nemesis::freeze(const Attack& attack) {
  std::string why;
  if (!freezer_) {
    if (auto made = isopool::tests::Freezer::make(why)) freezer_.emplace(std::move(*made));
  }
  std::vector<pid_t> all;
  for (const Member& member : target_.members()) all.push_back(member.id.pid);
  ++counts_.byFamily[static_cast<size_t>(attack.family)];
  target_.excuse(attack.length);
  const auto from = std::chrono::steady_clock::now();
  if (freezer_) {
    freezer_->add(all);
    freezer_->freeze();
    std::this_thread::sleep_for(attack.length);
    freezer_->thaw();
    return target_.attacks().noteFreeze(from, std::chrono::steady_clock::now());
  }
  std::vector<isopool::base::Fd> descriptors;
  for (const pid_t pid : all) {
    isopool::base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd.valid() || !target_.owns(pid) || stopped_.count(pid) != 0) continue;
    ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGSTOP, nullptr, 0);
    descriptors.push_back(std::move(pidfd));
  }
  std::this_thread::sleep_for(attack.length);
  for (const isopool::base::Fd& pidfd : descriptors) {
    ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGCONT, nullptr, 0);
  }
  target_.attacks().noteFreeze(from, std::chrono::steady_clock::now());
}

}  // namespace chaos
