// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/processes/restart_policy.h"
#include "tests/simulation/chance.h"

namespace isopool::simulation {

using base::TimePoint;

/// Something that acts by itself: a process, or the supervisor's event loop.
class Actor {
 public:
  virtual ~Actor() = default;
  /// Its time has come. It says by wakeAt() when it wants to act again.
  virtual void act() = 0;
  /// It is woken, a while later, when one of these is readable.
  virtual void appendDescriptors(std::vector<int>& descriptors) const = 0;

  /// No later than that.
  void wakeAt(TimePoint when) {
    if (!wake_ || when < *wake_) wake_ = when;
  }
  /// A message has come, and is noticed then.
  void rouse(TimePoint when) {
    roused_ = true;
    wakeAt(when);
  }
  const std::optional<TimePoint>& wake() const { return wake_; }
  bool roused() const { return roused_; }
  void awake() {
    wake_.reset();
    roused_ = false;
  }

 private:
  std::optional<TimePoint> wake_;
  bool roused_ = false;
};

/// One thread's worth of everything: a clock that jumps to the next thing that happens, the actors,
/// and chance, which says which of those whose time has come acts next. What happens depends on the
/// seed alone.
class World {
 public:
  explicit World(uint64_t seed);

  Chance chance;
  TimePoint now() const { return now_; }

  void add(Actor& actor);
  void remove(Actor& actor);
  /// Does something once, at its time, in an order of chance with all else of that time.
  void after(Microseconds delay, std::function<void()> event);
  /// How long a message, a signal or a wake-up takes: mostly next to nothing, sometimes for ever
  /// long.
  Microseconds latency();
  /// From here on everybody is quick and nothing goes wrong by itself.
  void calm() { storm_ = false; }
  bool storm() const { return storm_; }
  /// A rare branch is taken: in a storm, and if this run is one that has it.
  bool misfortune(uint64_t oneIn) { return storm_ && chance.oneIn(oneIn); }

  /// Lets one thing happen. False if nothing will ever happen again.
  bool step();
  uint64_t steps() const { return steps_; }

  /// Adds to what two runs with one seed must have in common.
  void note(const char* what, uint64_t first = 0, uint64_t second = 0);
  uint64_t trace() const { return trace_; }
  /// Something that must hold did not.
  void violated(const std::string& claim);
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  void wakeByDescriptors();

  TimePoint now_;
  std::vector<Actor*> actors_;
  std::multimap<TimePoint, std::function<void()>> events_;
  bool storm_ = true;
  bool slow_;  ///< this run has delays of seconds
  uint64_t steps_ = 0;
  uint64_t trace_ = 14695981039346656037u;
  std::vector<std::string> violations_;
};

}  // namespace isopool::simulation
