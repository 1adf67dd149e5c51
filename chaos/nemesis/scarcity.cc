// SPDX-License-Identifier: BSD-3-Clause
// Makes a resource unavailable for a while: descriptors (EMFILE) or address space (ENOMEM).
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "chaos/nemesis/nemesis.h"

namespace chaos {

namespace {
constexpr std::array kSecondLooks{std::chrono::milliseconds(30), std::chrono::milliseconds(300)};
}  // namespace

void Nemesis::takeDescriptors(const Attack& attack, pid_t victim) {
  // Open descriptors stay open.
  limit(attack, victim, RLIMIT_NOFILE, 3);
}

void Nemesis::takeMemory(const Attack& attack, pid_t victim) {
  limit(attack, victim, RLIMIT_AS, virtualBytes(victim));
}

void Nemesis::limit(const Attack& attack, pid_t victim, int resource, uint64_t least) {
  // A program that is still starting could not load its libraries, which does not concern isopool.
  if (attack.victim == Role::kProgram && !handlesInterruptions(victim)) return;
  // A supervisor that is still starting can't do without the resource either: it logs
  // this and ends.
  if (attack.victim == Role::kSupervisor && target_.living(Role::kWorker).empty()) return;
  const auto which = static_cast<__rlimit_resource>(resource);
  // The process is already limited: the earlier attack knows its real limit and restores it.
  if (!limited_.insert({victim, resource}).second) return;
  rlimit before{};
  if (::prlimit(victim, which, nullptr, &before) != 0) {
    limited_.erase({victim, resource});
    return;
  }
  const rlimit low{std::min<rlim_t>(least, before.rlim_cur), before.rlim_max};
  // User code may die of the shortage. Programs and supervisors may not.
  if (attack.victim == Role::kWorker || attack.victim == Role::kZygote) {
    target_.attacks().note(victim);
  }
  const uint64_t began = statusOf(victim).startTime;
  const auto from = std::chrono::steady_clock::now();
  ::prlimit(victim, which, &low, nullptr);
  later(attack.length, [this, victim, resource, which, before, began, from] {
    limited_.erase({victim, resource});
    if (statusOf(victim).startTime == began) ::prlimit(victim, which, &before, nullptr);
    // Also ends the shortage for processes that the victim started meanwhile: a zygote with the low
    // limit would pass it to all of its workers.
    if (which == RLIMIT_AS) {
      restoreHeirs();
      // A process that is being forked or that loses its parent meanwhile may be missed.
      for (const auto pause : kSecondLooks) later(pause, [this] { restoreHeirs(); });
    }
    noteDisturbance(from, std::chrono::steady_clock::now());
  });
  ++counts_.byFamily[static_cast<size_t>(attack.family)];
}

void Nemesis::restoreHeirs() {
  rlimit normal{};  // all processes of a target have it from this one
  ::getrlimit(RLIMIT_AS, &normal);
  for (const Member& member : target_.members()) {
    const pid_t pid = member.id.pid;
    if (limited_.count({pid, RLIMIT_AS}) != 0) continue;
    rlimit now{};
    if (::prlimit(pid, RLIMIT_AS, nullptr, &now) != 0 || now.rlim_cur >= normal.rlim_cur) continue;
    ::prlimit(pid, RLIMIT_AS, &normal, nullptr);
  }
}

}  // namespace chaos
