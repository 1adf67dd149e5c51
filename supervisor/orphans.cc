// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/orphans.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "supervisor/process_table.h"

namespace isopool::supervisor {

namespace {

bool contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

}  // namespace

void reapOrphans(const std::vector<pid_t>& own) {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    // It hides the others from us, but not for long: its owner reaps it, and then comes here.
    if (contains(own, info.si_pid)) return;
    ::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
  }
}

size_t killOrphans(const std::vector<pid_t>& own) {
  size_t killed = 0;
  for (const pid_t child : childrenOf(::getpid())) {
    if (contains(own, child) || contains(own, ::getpgid(child))) continue;
    if (::kill(child, SIGKILL) == 0) ++killed;
  }
  return killed;
}

}  // namespace isopool::supervisor
