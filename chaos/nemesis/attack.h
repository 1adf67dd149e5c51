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
  kDescriptors,   ///< no descriptor can be opened for `length`
  kMemory,        ///< no address space can be had for `length`
  kInterruption,  ///< a signal with a handler to each thread, again and again, for `length`
  kProcessors,    ///< all processors are busy for `length`
  kClock,         ///< CLOCK_REALTIME goes by `length`, forwards or back
  kFamilies,
};
const char* nameOf(Family family);

struct Attack {
  Family family = Family::kKill;
  Role victim = Role::kWorker;
  uint64_t choice = 0;  ///< which of those that there are then
  std::chrono::milliseconds length{0};
  std::chrono::microseconds before{0};  ///< pause before it
};
std::string describe(const Attack& attack);

/// The attacks on one target, in their order: a function of the seed and the kind of target alone.
class AttackPlan {
 public:
  AttackPlan(uint64_t seed, bool plain, bool shared);
  /// What an episode begins with, while nothing else is disturbed: an interruption, of another
  /// program each time, long enough to make, load with and close several managers. Takes nothing
  /// from the seed.
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
