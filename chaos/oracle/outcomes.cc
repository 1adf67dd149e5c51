// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/oracle/outcomes.h"

#include <algorithm>

namespace chaos {

namespace {

using std::chrono::milliseconds;

// How much later than its deadline an outcome may arrive, while everything runs on two cores.
constexpr milliseconds kSlack(5000);
// The longest time of a call without a deadline: it may wait for a new zygote.
constexpr milliseconds kWithoutDeadline(60'000);

AttackLog::Time timeOf(const Record& record) {
  return AttackLog::Time(std::chrono::nanoseconds(record.when));
}

const char* kindOf(uint32_t flags) {
  if ((flags & kConstructor) != 0) return "a manager's constructor ";
  if ((flags & kLoad) != 0) return "a manager's load ";
  if ((flags & kClose) != 0) return "a manager's close ";
  return "call ";
}

bool neverRan(Outcome outcome) {
  return outcome == Outcome::kNeverRan || outcome == Outcome::kCancelled ||
         outcome == Outcome::kSupervisorLostUnstarted;
}

}  // namespace

Outcomes::Outcomes(std::string program, const std::string& history, const std::string& effects,
                   AttackLog& attacks, Findings& findings, int slowness)
    : program_(std::move(program)),
      history_(history),
      effects_(effects),
      attacks_(attacks),
      findings_(findings),
      slowness_(slowness) {}

void Outcomes::read(milliseconds excused) {
  // In this order: an effect is written before its outcome.
  readHistory(excused);
  readEffects();
  for (auto& [nonce, call] : open_) {
    if (call.ranIn != 0) attacks_.note(static_cast<pid_t>(call.ranIn));
  }
  for (const uint64_t nonce : judgeable_) {
    const Call& call = ended_.at(nonce);
    const bool deadly = (call.invoked.flags & kDeadly) != 0;
    const bool overdue = call.ended.outcome == Outcome::kOverdue;
    if (deadly && call.ranIn != 0) attacks_.note(static_cast<pid_t>(call.ranIn));
    if (overdue && call.ended.signal == 0 && call.ended.worker != 0) {
      attacks_.note(call.ended.worker);
    }
    if (overdue && call.ranIn != 0) {
      attacks_.note(static_cast<pid_t>(call.ranIn));
    }
  }
}

void Outcomes::judge(Standing standing) {
  for (const uint64_t nonce : judgeable_) {
    const Call& call = ended_.at(nonce);
    judgeEffects(call);
    judgeDeath(call);
    if (call.ended.outcome == Outcome::kValue) ended_.erase(nonce);
  }
  judgeable_.clear();
  for (const Call& call : ofManagers_) judgeManager(call);
  ofManagers_.clear();
  for (auto& [nonce, call] : open_) judgeOpen(call, standing);
  open_.clear();
}

void Outcomes::readHistory(milliseconds excused) {
  for (const Record& record : history_.readNew()) {
    if (record.event == Event::kInvoked) {
      open_[record.nonce].invoked = record;
      if ((record.flags & kOfManager) == 0) ++calls_;
      continue;
    }
    const auto found = open_.find(record.nonce);
    if (found == open_.end()) {
      findings_.add(Fault::kDoubled, program_ + ": call " + std::to_string(record.nonce) +
                                         " has a second outcome: " + nameOf(record.outcome));
      continue;
    }
    Call call = found->second;
    open_.erase(found);
    call.ended = record;
    checkTime(call, excused);
    if (record.outcome == Outcome::kWrong) findings_.add(Fault::kWrong, describe(call));
    if ((record.flags & kOfManager) != 0) {
      ofManagers_.push_back(call);
      continue;
    }
    ++outcomes_[static_cast<size_t>(record.outcome)];
    ended_[record.nonce] = call;
    judgeable_.push_back(record.nonce);
  }
}

void Outcomes::readEffects() {
  for (const Effect& effect : effects_.readNew()) {
    auto found = open_.find(effect.nonce);
    if (found == open_.end()) {
      found = ended_.find(effect.nonce);
      if (found == ended_.end()) {
        findings_.add(Fault::kDoubled, program_ + ": call " + std::to_string(effect.nonce) +
                                           " ran in process " + std::to_string(effect.process) +
                                           " after it had returned a value");
        continue;
      }
    }
    Call& call = found->second;
    call.ranIn = effect.process;
    if (++call.effects > 1 && (call.invoked.flags & kIdempotent) == 0) {
      findings_.add(Fault::kDoubled, describe(call) + ", and ran " + std::to_string(call.effects) +
                                         " times, at last in process " +
                                         std::to_string(effect.process));
    }
    if (!neverRan(call.ended.outcome)) continue;
    const bool judgedBefore =
        std::find(judgeable_.begin(), judgeable_.end(), effect.nonce) == judgeable_.end();
    if (judgedBefore) judgeEffects(call);
  }
}

void Outcomes::judgeOpen(Call& call, Standing standing) {
  if (standing == Standing::kResting) {
    findings_.add(Fault::kLost, describe(call) + ", though its program rests");
  } else if (standing == Standing::kStuck) {
    findings_.add(Fault::kHung, describe(call) + ", and its program does not come to rest");
  }
}

void Outcomes::judgeEffects(const Call& call) {
  const bool idempotent = (call.invoked.flags & kIdempotent) != 0;
  if (call.ended.outcome == Outcome::kValue && call.effects == 0) {
    findings_.add(Fault::kLost, describe(call) + ", and had no effect");
  }
  if (neverRan(call.ended.outcome) && call.effects != 0 && !idempotent) {
    findings_.add(Fault::kDoubled,
                  describe(call) + ", but it ran in process " + std::to_string(call.ranIn));
  }
}

// Finds a call whose worker died although it was not attacked and ran no deadly call.
void Outcomes::judgeDeath(const Call& call) {
  if (call.ended.outcome != Outcome::kWorkerLost && call.ended.outcome != Outcome::kNeverRan)
    return;
  const bool deadly = (call.invoked.flags & kDeadly) != 0;
  if (deadly && call.ended.outcome == Outcome::kWorkerLost) ++selfInflicted_;
  if (deadly || call.ended.worker == 0 || attacks_.attacked(call.ended.worker)) return;
  findings_.add(Fault::kSurvivorCrashed, describe(call) + ": nobody had attacked that worker");
}

// A load may lose the worker that it uses, like a call.
void Outcomes::judgeManager(const Call& call) {
  const bool disturbed = attacks_.disturbed(timeOf(call.invoked), timeOf(call.ended));
  ManagerCounts& counts = managers_.at(call.invoked.flags & kOfManager);
  ++counts.ended;
  if ((call.ended.flags & kInterrupted) != 0) {
    ++counts.interrupted;
    if (!disturbed) ++counts.interruptedOnly;
  }
  // A wrong failure is already a finding.
  if (call.ended.outcome == Outcome::kValue || call.ended.outcome == Outcome::kWrong) return;
  const bool workerAttacked = call.ended.worker != 0 && attacks_.attacked(call.ended.worker);
  if (disturbed || workerAttacked) return;
  findings_.add(Fault::kWrong, describe(call) + ": nothing of what it needs had been attacked" +
                                   lastDisturbance(call));
}

void Outcomes::checkTime(const Call& call, milliseconds excused) {
  const milliseconds took((call.ended.when - call.invoked.when) / 1'000'000);
  milliseconds allowed = kWithoutDeadline * slowness_;
  if (call.invoked.deadline != 0) {
    allowed = milliseconds(call.invoked.deadline);
    if (excused.count() == 0) latest_ = std::max(latest_, took - allowed);
  }
  if (took > allowed + kSlack * slowness_ + excused) {
    findings_.add(Fault::kHung, describe(call) + " after " + std::to_string(took.count()) + " ms");
  }
}

std::string Outcomes::lastDisturbance(const Call& call) const {
  const auto since = attacks_.sinceDisturbance(timeOf(call.invoked));
  return since ? "; the last attack on that was over " + std::to_string(since->count()) +
                     " ms before it began"
               : "";
}

std::string Outcomes::describe(const Call& call) const {
  std::string text =
      program_ + ": " + kindOf(call.invoked.flags) + std::to_string(call.invoked.nonce);
  if (call.invoked.deadline != 0) {
    text += " with a deadline of " + std::to_string(call.invoked.deadline) + " ms";
  }
  text += call.ended.outcome == Outcome::kNone ? " has no outcome"
                                               : std::string(": ") + nameOf(call.ended.outcome);
  if (call.ended.text[0] != '\0') text += " (" + std::string(call.ended.text.data()) + ")";
  return text;
}

}  // namespace chaos
