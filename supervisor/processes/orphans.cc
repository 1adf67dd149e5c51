// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/orphans.h"

#include <algorithm>

namespace isopool::supervisor {

namespace {

bool contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

}  // namespace

void reapOrphans(Processes& processes, const std::vector<pid_t>& own) {
  while (const pid_t dead = processes.deadChild()) {
    // While it is a zombie, waitid() may return only this one. Its owner reaps it, and then this
    // function is called again.
    if (contains(own, dead)) return;
    processes.reapOrphan(dead);
  }
}

size_t killOrphans(Processes& processes, const std::vector<pid_t>& own) {
  size_t killed = 0;
  for (const pid_t child : processes.children()) {
    if (contains(own, child) || contains(own, processes.groupOf(child))) continue;
    if (processes.killOrphan(child)) ++killed;
  }
  return killed;
}

}  // namespace isopool::supervisor
