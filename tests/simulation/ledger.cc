// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/ledger.h"

namespace isopool::simulation {

void Ledger::made(uint64_t call, bool idempotent) {
  calls_[call] = {idempotent, 0, std::nullopt};
  ++made_;
  ++pending_;
}

void Ledger::ran(uint64_t call) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;  // its caller is dead
  world_.note("ran", call);
  Entry& entry = found->second;
  if (++entry.runs > 1 && !entry.idempotent) {
    world_.violated("call " + std::to_string(call) + " ran twice but may run only once");
  }
  if (entry.ending == Ending::kNotStarted) {
    world_.violated("call " + std::to_string(call) +
                    " ran after its caller was informed that it never runs");
  }
}

void Ledger::ended(uint64_t call, Ending ending) {
  Entry& entry = calls_.at(call);
  const std::string name = "call " + std::to_string(call);
  world_.note("ended", call, static_cast<uint64_t>(ending));
  if (entry.ending) return world_.violated(name + " ended twice");
  entry.ending = ending;
  --pending_;
  ++endings_[ending];
  if (ending == Ending::kAnswered && entry.runs == 0) {
    world_.violated(name + " was answered and never ran");
  }
  if (ending == Ending::kNotStarted && entry.runs != 0 && !entry.idempotent) {
    world_.violated(name + " had run when its caller was informed that it never runs");
  }
}

void Ledger::forgotten(uint64_t call) {
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  if (!found->second.ending) --pending_;
  calls_.erase(found);
}

uint64_t Ledger::endings(Ending ending) const {
  const auto found = endings_.find(ending);
  return found != endings_.end() ? found->second : 0;
}

std::string Ledger::firstPending() const {
  for (const auto& [call, entry] : calls_) {
    if (!entry.ending) return "call " + std::to_string(call);
  }
  return "none";
}

}  // namespace isopool::simulation
