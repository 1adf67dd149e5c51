// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "supervisor/pool/death_cause.h"

namespace isopool::supervisor {

/// What the workers of one group have done since the group was made. No count ever falls: what a
/// worker did stays counted when it dies, and a worker that writes a smaller count than before
/// counts as having done nothing. Not thread-safe.
class GroupTotals {
 public:
  /// How many workers took how long to be ready, from the fork request on.
  struct Starts {
    static constexpr std::array<base::Milliseconds, 10> kBounds{
        base::Milliseconds(5),    base::Milliseconds(10),   base::Milliseconds(25),
        base::Milliseconds(50),   base::Milliseconds(100),  base::Milliseconds(250),
        base::Milliseconds(1000), base::Milliseconds(2500), base::Milliseconds(10000),
        base::Milliseconds(30000)};
    /// Starts that took at most kBounds of the same index, and longer than the bound before; last
    /// those that took longer than all.
    std::array<uint64_t, kBounds.size() + 1> counts{};
    base::Milliseconds sum{0};
  };

  /// The time for which recentDeaths() looks back.
  static constexpr base::Milliseconds kRecent{5 * 60 * 1000};

  /// Counts what a living worker has done since the last time: `calls` completed and
  /// `processorTime` used in its whole life, of which `age` is the length. `calls` comes from the
  /// worker, so more than a worker can complete in that time is not believed.
  void advance(base::Epoch epoch, uint64_t calls, base::Milliseconds processorTime,
               base::Milliseconds age);
  /// The worker is reaped; call advance() before.
  void forget(base::Epoch epoch) { counted_.erase(epoch); }
  void countStart(base::Milliseconds took);
  void countDeath(DeathCause cause, base::TimePoint now);
  void countQuarantine() { ++quarantines_; }
  void countClientQuarantine() { ++clientQuarantines_; }
  /// Counts acts that the sandbox forbade. The worker reports `act` and `times`.
  void countDenial(const std::string& act, uint64_t times);

  uint64_t calls() const { return calls_; }
  base::Milliseconds processorTime() const { return processorTime_; }
  const Starts& starts() const { return starts_; }
  /// By DeathCause.
  const std::array<uint64_t, kDeathCauses>& deaths() const { return deaths_; }
  /// Deaths within the last kRecent; at most 1,000.
  uint64_t recentDeaths(base::TimePoint now) const;
  /// Of slots and spares.
  uint64_t quarantines() const { return quarantines_; }
  uint64_t clientQuarantines() const { return clientQuarantines_; }
  /// By kind of act: "file", "system_call", "other". The names of the acts themselves come from
  /// user code, and their number is not bounded.
  const std::map<std::string, uint64_t>& denials() const { return denials_; }

 private:
  struct Counted {
    uint64_t calls = 0;
    base::Milliseconds processorTime{0};
  };

  uint64_t calls_ = 0;
  base::Milliseconds processorTime_{0};
  std::map<base::Epoch, Counted> counted_;
  Starts starts_;
  std::array<uint64_t, kDeathCauses> deaths_{};
  std::deque<base::TimePoint> recent_;
  uint64_t quarantines_ = 0;
  uint64_t clientQuarantines_ = 0;
  std::map<std::string, uint64_t> denials_{{"file", 0}, {"system_call", 0}, {"other", 0}};
};

}  // namespace isopool::supervisor
