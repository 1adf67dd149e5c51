// SPDX-License-Identifier: BSD-3-Clause
// Sends many signals that have a handler: each system call of the program's threads ends with
// EINTR.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "chaos/nemesis/nemesis.h"

namespace chaos {

void Nemesis::interrupt(const Attack& attack, pid_t victim) {
  const auto end = std::chrono::steady_clock::now() + attack.length;
  if (!handlesInterruptions(victim)) return;
  while (std::chrono::steady_clock::now() < end) {
    for (const pid_t thread : threadsOf(victim)) ::syscall(SYS_tgkill, victim, thread, SIGUSR1);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  ++counts_.byFamily[static_cast<size_t>(attack.family)];
}

}  // namespace chaos
