// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/nemesis/attack.h"

#include <cmath>

namespace chaos {

using std::chrono::microseconds;
using std::chrono::milliseconds;

const char* nameOf(Family family) {
  switch (family) {
    case Family::kKill:
      return "kill";
    case Family::kSegfault:
      return "segfault";
    case Family::kAbort:
      return "abort";
    case Family::kStop:
      return "stop";
    case Family::kFreeze:
      return "freeze";
    case Family::kDescriptors:
      return "descriptors";
    case Family::kMemory:
      return "memory";
    case Family::kInterruption:
      return "interruption";
    case Family::kProcessors:
      return "processors";
    case Family::kClock:
      return "clock";
    case Family::kFamilies:
      break;
  }
  return "unknown";
}

std::string describe(const Attack& attack) {
  return std::string(nameOf(attack.family)) + " " + nameOf(attack.victim) + " " +
         std::to_string(attack.choice % 1000) + " " + std::to_string(attack.length.count()) +
         " ms, after " + std::to_string(attack.before.count()) + " us";
}

AttackPlan::AttackPlan(uint64_t seed, bool plain, bool shared)
    : random_(seed * 4 + (plain ? 2 : 0) + (shared ? 1 : 0)), plain_(plain) {}

Attack AttackPlan::first() {
  Attack attack;
  attack.family = Family::kInterruption;
  attack.victim = Role::kProgram;
  attack.choice = episodes_++;
  attack.length = milliseconds(500);
  return attack;
}

// Weights in thousandths. Processes that start slowly are killed rarely: Python and torch take one
// or two seconds.
Attack AttackPlan::next() {
  Attack attack;
  attack.choice = random_();
  attack.before = microseconds(below(plain_ ? 4'000 : 20'000));
  const uint64_t draw = below(1000);
  const uint64_t rare = plain_ ? 3 : 4;
  if (draw < rare) {
    attack.victim = Role::kZygote;
    attack.family = below(2) == 0 ? Family::kKill : Family::kSegfault;
  } else if (draw < 2 * rare) {
    attack.victim = below(4) == 0 ? Role::kGuardian : Role::kSupervisor;
  } else if (draw < 3 * rare) {
    attack.victim = Role::kProgram;
    attack.family = below(3) == 0 ? Family::kAbort : Family::kKill;
  } else if (draw < 30) {
    attack.family = Family::kStop;
    attack.length = below(8) == 0 ? between(300, 10'000) : between(10, 300);
    const uint64_t who = below(10);
    attack.victim = who < 5   ? Role::kWorker
                    : who < 7 ? Role::kProgram
                    : who < 9 ? Role::kSupervisor
                              : Role::kZygote;
  } else if (draw < 50) {
    attack.family = below(2) == 0 ? Family::kDescriptors : Family::kMemory;
    attack.length = between(20, 500);
    const uint64_t who = below(10);
    attack.victim = who < 5 ? Role::kWorker : who < 8 ? Role::kSupervisor : Role::kProgram;
  } else if (draw < 56) {
    attack.family = Family::kInterruption;
    attack.victim = Role::kProgram;
    attack.length = between(10, 200);
  } else if (draw < 58) {
    attack.family = Family::kProcessors;
    attack.victim = Role::kOther;
    attack.length = between(50, 500);
  } else if (draw < 68) {
    attack.family = Family::kClock;
    attack.victim = Role::kOther;
    attack.length = between(1, 86'400'000);
  } else if (draw < 72) {
    attack.family = Family::kFreeze;
    attack.victim = Role::kOther;
    attack.length = below(8) == 0 ? between(1'000, 10'000) : between(10, 1'000);
  } else if (draw < 180) {
    attack.family = Family::kSegfault;
  } else if (draw < 230) {
    attack.family = Family::kAbort;
  }
  return attack;
}

uint64_t AttackPlan::below(uint64_t limit) {
  return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random_);
}

// Each order of magnitude is equally likely.
milliseconds AttackPlan::between(double shortest, double longest) {
  std::uniform_real_distribution<double> exponent(std::log(shortest), std::log(longest));
  return milliseconds(static_cast<int64_t>(std::exp(exponent(random_))));
}

}  // namespace chaos
