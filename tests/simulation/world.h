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
  /// Called at the actor's time. The actor calls wakeAt() if it wants to act again.
  virtual void act() = 0;
  /// Appends the descriptors that wake the actor, a while after one of them becomes readable.
  virtual void appendDescriptors(std::vector<int>& descriptors) const = 0;

  /// Requests a call of act() at `when` or earlier.
  void wakeAt(TimePoint when) {
    if (!wake_ || when < *wake_) wake_ = when;
  }
  /// A message has arrived; the actor notices it at `when`.
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

/// The clock and the actors, on one thread. The clock jumps to the next event. If the time of
/// several actors has come, a random choice decides which acts next. All events depend on the seed
/// alone.
class World {
 public:
  explicit World(uint64_t seed);

  Chance chance;
  TimePoint now() const { return now_; }

  void add(Actor& actor);
  void remove(Actor& actor);
  /// Calls `event` once after `delay`, in a random order with all other events of that time.
  void after(Microseconds delay, std::function<void()> event);
  /// A random delay of a message, a signal or a wake-up: mostly very short, sometimes very long.
  Microseconds latency();
  /// From now on all delays are short and no failure happens by itself.
  void calm() { storm_ = false; }
  bool storm() const { return storm_; }
  /// True once in `oneIn` on average, but only during the storm. 0: never.
  bool misfortune(uint64_t oneIn) { return storm_ && chance.oneIn(oneIn); }

  /// Runs one event. False if no event is left.
  bool step();
  uint64_t steps() const { return steps_; }

  /// Adds an event to the trace, which must be equal in two runs with the same seed.
  void note(const char* what, uint64_t first = 0, uint64_t second = 0);
  uint64_t trace() const { return trace_; }
  /// Records that a claim did not hold.
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
