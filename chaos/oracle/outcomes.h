// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "chaos/history/history.h"
#include "chaos/oracle/attack_log.h"
#include "chaos/oracle/findings.h"

namespace chaos {

/// How a client program stands when its history is judged.
enum class Standing {
  kResting,  ///< no call is in flight
  kStuck,    ///< it was to rest and does not: its open calls hang
  kDead,     ///< it was killed: its open calls have nobody to have an outcome
};

/// Of the constructors, loads or closes of managers.
struct ManagerCounts {
  uint64_t ended = 0;
  uint64_t interrupted = 0;      ///< of them: by signals
  uint64_t interruptedOnly = 0;  ///< of these: that nothing else disturbed, so that none may fail
  ManagerCounts& operator+=(const ManagerCounts& others) {
    ended += others.ended;
    interrupted += others.interrupted;
    interruptedOnly += others.interruptedOnly;
    return *this;
  }
};

/// Reads the history of one life of one client program and its models' effects, and judges both:
/// exactly one outcome for each call, in time; an effect at most once, exactly once if there is a
/// value, and none of a call that never ran; no manager whose constructor, load or close fails
/// although its supervisor was not attacked.
class Outcomes {
 public:
  Outcomes(std::string program, const std::string& history, const std::string& effects,
           AttackLog& attacks, Findings& findings);

  /// Reads what is new, and notes which workers its calls may have killed. Stopped processes make
  /// calls late: by `excused` at most, since the last time.
  void read(std::chrono::milliseconds excused);
  /// Judges what was read, once all programs of the same workers have read theirs.
  void judge(Standing standing);

  uint64_t calls() const { return calls_; }
  /// Calls whose model killed its own worker.
  uint64_t selfInflictedDeaths() const { return selfInflicted_; }
  const std::array<uint64_t, static_cast<size_t>(Outcome::kOutcomes)>& outcomes() const {
    return outcomes_;
  }
  const ManagerCounts& managers(RecordFlag act) const { return managers_.at(act); }
  /// The longest time from a call's deadline to its outcome.
  std::chrono::milliseconds latest() const { return latest_; }

 private:
  struct Call {
    Record invoked;
    Record ended;
    uint32_t effects = 0;
    uint64_t ranIn = 0;
  };

  void readHistory(std::chrono::milliseconds excused);
  void readEffects();
  void judgeOpen(Call& call, Standing standing);
  void judgeEffects(const Call& call);
  void judgeDeath(const Call& call);
  void judgeManager(const Call& call);
  void checkTime(const Call& call, std::chrono::milliseconds excused);
  std::string describe(const Call& call) const;

  const std::string program_;
  AppendedEntries<Record> history_;
  AppendedEntries<Effect> effects_;
  AttackLog& attacks_;
  Findings& findings_;
  std::unordered_map<uint64_t, Call> open_;
  std::unordered_map<uint64_t, Call> ended_;  // and not yet known to be whole
  std::vector<uint64_t> judgeable_;
  std::vector<Call> ofManagers_;  // ended, and not yet judged
  std::map<uint32_t, ManagerCounts> managers_{{kConstructor, {}}, {kLoad, {}}, {kClose, {}}};
  uint64_t calls_ = 0;
  uint64_t selfInflicted_ = 0;
  std::array<uint64_t, static_cast<size_t>(Outcome::kOutcomes)> outcomes_{};
  std::chrono::milliseconds latest_{0};
};

}  // namespace chaos
