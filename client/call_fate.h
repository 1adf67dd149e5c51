// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

/// What becomes of a call, decided from what is known of it: no memory, no clock, no thread.
namespace isopool::client {

/// What became of a request.
enum class Fate : uint32_t {
  kPending,
  kAnswered,
  kNeverStarted,  ///< the worker is dead and user code of this call has not run an instruction
  kLost,          ///< the worker is dead and it may have
  kWithdrawn,     ///< taken back before it started: its deadline passed, or by a Recall
  kOverdue,  ///< its deadline passed while it ran; if it is no preparation (ipc::isPreparation)
             ///< the worker is killed, a shared one later
};

/// Of a request that its dead worker has not answered. `started`: ClientEnd::hasStarted().
constexpr Fate fateAtDeath(bool started) { return started ? Fate::kLost : Fate::kNeverStarted; }

/// Of a request whose deadline has passed. `takenBack`: what ClientEnd::recall() said.
constexpr Fate fateAtDeadline(bool takenBack) {
  return takenBack ? Fate::kWithdrawn : Fate::kOverdue;
}

/// What follows for the call that made the request.
enum class Consequence { kAnswer, kRunElsewhere, kWorkerLost, kNotStarted, kOverdue };

/// `idempotent`: it may run twice. `cancelled`: its caller took it back.
constexpr Consequence consequenceOf(Fate fate, bool idempotent, bool cancelled) {
  switch (fate) {
    case Fate::kAnswered:
      return Consequence::kAnswer;
    case Fate::kNeverStarted:
      return cancelled ? Consequence::kNotStarted : Consequence::kRunElsewhere;
    case Fate::kLost:
      return idempotent ? Consequence::kRunElsewhere : Consequence::kWorkerLost;
    case Fate::kWithdrawn:
      return Consequence::kNotStarted;
    default:
      return Consequence::kOverdue;
  }
}

}  // namespace isopool::client
