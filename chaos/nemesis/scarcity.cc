// SPDX-License-Identifier: BSD-3-Clause
// Nothing is to be had for a while: descriptors (EMFILE), address space (ENOMEM).
#include <sys/resource.h>

#include <algorithm>

#include "chaos/nemesis/nemesis.h"

namespace chaos {

void Nemesis::takeDescriptors(const Attack& attack, pid_t victim) {
  // What is open stays open.
  limit(attack, victim, RLIMIT_NOFILE, 3);
}

void Nemesis::takeMemory(const Attack& attack, pid_t victim) {
  limit(attack, victim, RLIMIT_AS, virtualBytes(victim));
}

void Nemesis::limit(const Attack& attack, pid_t victim, int resource, uint64_t least) {
  // A program that is not up yet can't load its libraries: that is no matter of isopool's.
  if (attack.victim == Role::kProgram && !handlesInterruptions(victim)) return;
  // Nor can a supervisor begin without: it says so and ends.
  if (attack.victim == Role::kSupervisor && target_.living(Role::kWorker).empty()) return;
  const auto which = static_cast<__rlimit_resource>(resource);
  // Limited already: its true limit is known to that attack.
  if (!limited_.insert({victim, resource}).second) return;
  rlimit before{};
  if (::prlimit(victim, which, nullptr, &before) != 0) {
    limited_.erase({victim, resource});
    return;
  }
  const rlimit low{std::min<rlim_t>(least, before.rlim_cur), before.rlim_max};
  // User code may die of it. Programs and supervisors may not.
  if (attack.victim == Role::kWorker || attack.victim == Role::kZygote) {
    target_.attacks().note(victim);
  }
  const uint64_t began = statusOf(victim).startTime;
  const auto from = std::chrono::steady_clock::now();
  ::prlimit(victim, which, &low, nullptr);
  later(attack.length, [this, victim, resource, which, before, low, began, from] {
    limited_.erase({victim, resource});
    if (statusOf(victim).startTime == began) ::prlimit(victim, which, &before, nullptr);
    // The shortage is over for whom the victim started meanwhile, too: a zygote that kept the limit
    // would give it to all of its workers.
    if (which == RLIMIT_AS) restoreHeirs(low, before);
    noteDisturbance(from, std::chrono::steady_clock::now());
  });
  ++counts_.byFamily[static_cast<size_t>(attack.family)];
}

void Nemesis::restoreHeirs(const rlimit& low, const rlimit& before) {
  for (const Member& member : target_.members()) {
    const pid_t pid = member.id.pid;
    rlimit now{};
    if (::prlimit(pid, RLIMIT_AS, nullptr, &now) == 0 && now.rlim_cur == low.rlim_cur) {
      ::prlimit(pid, RLIMIT_AS, &before, nullptr);
    }
  }
}

}  // namespace chaos
