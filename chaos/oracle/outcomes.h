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

/// The state of a client program when its history is judged.
enum class Standing {
  kResting,  ///< no call is in flight
  kStuck,    ///< it should rest and does not: its open calls hang
  kDead,     ///< it was killed: its open calls need no outcome
};

/// Counts constructors, loads or closes of managers.
struct ManagerCounts {
  uint64_t ended = 0;
  uint64_t interrupted = 0;      ///< those of them that signals interrupted
  uint64_t interruptedOnly = 0;  ///< those of these that nothing else disturbed: none may fail
  ManagerCounts& operator+=(const ManagerCounts& others) {
    ended += others.ended;
    interrupted += others.interrupted;
    interruptedOnly += others.interruptedOnly;
    return *this;
  }
};

/// Reads the history of one life of one client program and its models' effects, and checks both:
/// each call has exactly one outcome, in time; it has at most one effect, exactly one if there is a
/// value, and none if it never ran; no constructor, load or close of a manager fails although its
/// supervisor was not attacked. On a machine that is slower than an ordinary one, the times that a
/// call may take are multiplied by `slowness`; deadlines are not.
class Outcomes {
 public:
  Outcomes(std::string program, const std::string& history, const std::string& effects,
           AttackLog& attacks, Findings& findings, int slowness);

  /// Reads new records, and notes which workers the calls may have killed. Stopped processes may
  /// have delayed calls by up to `excused` since the last read.
  void read(std::chrono::milliseconds excused);
  /// Judges the records read so far. Call it when the histories of all programs of the same workers
  /// have been read.
  void judge(Standing standing);

  uint64_t calls() const { return calls_; }
  /// The number of calls whose model killed its own worker.
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
  std::string lastDisturbance(const Call& call) const;

  const std::string program_;
  AppendedEntries<Record> history_;
  AppendedEntries<Effect> effects_;
  AttackLog& attacks_;
  Findings& findings_;
  const int slowness_;
  std::unordered_map<uint64_t, Call> open_;
  std::unordered_map<uint64_t, Call> ended_;  // not yet known to be complete
  std::vector<uint64_t> judgeable_;
  std::vector<Call> ofManagers_;  // ended and not yet judged
  std::map<uint32_t, ManagerCounts> managers_{{kConstructor, {}}, {kLoad, {}}, {kClose, {}}};
  uint64_t calls_ = 0;
  uint64_t selfInflicted_ = 0;
  std::array<uint64_t, static_cast<size_t>(Outcome::kOutcomes)> outcomes_{};
  std::chrono::milliseconds latest_{0};
};

}  // namespace chaos
