// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

/// What becomes of a call, decided from what is known of it: no memory, no clock, no thread.
namespace isopool::client {

/// What became of a request.
enum class RequestOutcome : uint32_t {
  kPending,
  kAnswered,
  kNeverStarted,  ///< the worker is dead and user code of this call has not run an instruction
  kLost,          ///< the worker is dead and it may have
  kWithdrawn,     ///< taken back before it started: its deadline passed, or by a CancellationToken
  kOverdue,  ///< its deadline passed while it ran; if it is no preparation (ipc::isPreparation)
             ///< the worker is killed, a shared one later
};

/// Of a request that its dead worker has not answered. `started`: ClientEnd::hasStarted().
constexpr RequestOutcome outcomeAtDeath(bool started) {
  return started ? RequestOutcome::kLost : RequestOutcome::kNeverStarted;
}

/// Of a request whose deadline has passed. `takenBack`: what ClientEnd::recall() said.
constexpr RequestOutcome outcomeAtDeadline(bool takenBack) {
  return takenBack ? RequestOutcome::kWithdrawn : RequestOutcome::kOverdue;
}

/// What follows for the call that made the request.
enum class RetryDecision { kAnswer, kRunElsewhere, kWorkerLost, kNotStarted, kOverdue };

/// `idempotent`: it may run twice. `cancelled`: its caller took it back.
constexpr RetryDecision retryDecisionFor(RequestOutcome outcome, bool idempotent, bool cancelled) {
  switch (outcome) {
    case RequestOutcome::kAnswered:
      return RetryDecision::kAnswer;
    case RequestOutcome::kNeverStarted:
      return cancelled ? RetryDecision::kNotStarted : RetryDecision::kRunElsewhere;
    case RequestOutcome::kLost:
      return idempotent ? RetryDecision::kRunElsewhere : RetryDecision::kWorkerLost;
    case RequestOutcome::kWithdrawn:
      return RetryDecision::kNotStarted;
    default:
      return RetryDecision::kOverdue;
  }
}

}  // namespace isopool::client
