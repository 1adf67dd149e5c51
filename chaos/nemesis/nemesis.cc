// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/nemesis/nemesis.h"

#include <poll.h>
#include <signal.h>

#include <thread>

namespace chaos {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {
// A supervisor that loses its first zygote ends a moment later, a supervisor without memory after
// two seconds. Programs notice the loss after that.
constexpr milliseconds kAftermath(3000);
}  // namespace

Nemesis::Nemesis(Target& target, AttackPlan plan, AttackCounts& counts, Findings& findings)
    : target_(target), plan_(std::move(plan)), counts_(counts), findings_(findings) {}

void Nemesis::attackUntil(Time end, const std::function<bool()>& enough) {
  carryOut(plan_.first());
  while (Clock::now() < end && !enough()) {
    const Attack attack = plan_.next();
    std::this_thread::sleep_for(attack.before);
    takeBack(Clock::now());
    carryOut(attack);
    target_.revive();
  }
  while (!restorations_.empty()) {
    std::this_thread::sleep_until(restorations_.begin()->first);
    takeBack(Clock::now());
  }
  target_.revive();
}

void Nemesis::carryOut(const Attack& attack) {
  if (attack.family == Family::kProcessors) return occupyProcessors(attack);
  if (attack.family == Family::kClock) return stepClock(attack);
  if (attack.family == Family::kFreeze) return freeze(attack);
  const std::vector<pid_t> there = target_.living(attack.victim);
  if (there.empty()) return;
  const pid_t victim = there[attack.choice % there.size()];
  switch (attack.family) {
    case Family::kKill:
      return kill(attack, victim, SIGKILL);
    case Family::kSegfault:
      return kill(attack, victim, SIGSEGV);
    case Family::kAbort:
      return kill(attack, victim, SIGABRT);
    case Family::kStop:
      return stop(attack, victim);
    case Family::kDescriptors:
      return takeDescriptors(attack, victim);
    case Family::kMemory:
      return takeMemory(attack, victim);
    case Family::kInterruption:
      return interrupt(attack, victim);
    default:
      return;
  }
}

void Nemesis::takeBack(Time until) {
  while (!restorations_.empty() && restorations_.begin()->first <= until) {
    const std::function<void()> act = std::move(restorations_.begin()->second);
    restorations_.erase(restorations_.begin());
    act();
  }
}

void Nemesis::noteDisturbance(Time from, Time until) {
  target_.attacks().noteDisturbance(from, until + kAftermath);
}

void Nemesis::later(milliseconds length, std::function<void()> act) {
  restorations_.emplace(Clock::now() + length, std::move(act));
}

}  // namespace chaos
