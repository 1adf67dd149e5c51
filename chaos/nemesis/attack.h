// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <string>

#include "chaos/target/target.h"

namespace chaos {

enum class Family {
  kKill,          ///< SIGKILL
  kSegfault,      ///< SIGSEGV
  kAbort,         ///< SIGABRT
  kStop,          ///< SIGSTOP, and SIGCONT after `length`
  kFreeze,        ///< all processes of the target are stopped at once for `length`
  kDescriptors,   ///< the process can open no descriptor for `length`
  kMemory,        ///< the process can map no memory for `length`
  kInterruption,  ///< a signal with a handler to each thread, again and again, for `length`
  kProcessors,    ///< all processors are busy for `length`
  kClock,         ///< CLOCK_REALTIME is stepped by `length`, forwards or back
  kFamilies,
};
const char* nameOf(Family family);

struct Attack {
  Family family = Family::kKill;
  Role victim = Role::kWorker;
  uint64_t choice = 0;  ///< selects one of the victims that live at that time
  std::chrono::milliseconds length{0};
  std::chrono::microseconds before{0};  ///< the pause before the attack
};
std::string describe(const Attack& attack);

/// The sequence of attacks on one target. It depends only on the seed and the kind of target.
class AttackPlan {
 public:
  AttackPlan(uint64_t seed, bool plain, bool shared);
  /// The first attack of an episode, while nothing else is disturbed: an interruption, of another
  /// program each time, long enough to make, load with and close several managers. Does not use the
  /// seed's random numbers.
  Attack first();
  Attack next();

 private:
  uint64_t below(uint64_t limit);
  std::chrono::milliseconds between(double shortest, double longest);

  std::mt19937_64 random_;
  uint64_t episodes_ = 0;
  const bool plain_;
};

}  // namespace chaos
