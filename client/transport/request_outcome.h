// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

/// Pure decisions about the outcome of a request and what follows for its call: they use no memory,
/// clock or thread.
namespace isopool::client {

/// How a request ended. Changes once, from kPending to one of the others.
enum class RequestOutcome : uint32_t {
  kPending,
  kAnswered,      ///< the worker has answered: with a value, an exception or a refusal
  kNeverStarted,  ///< the worker is dead and has not run an instruction of the call's user code, or
                  ///< it has left the call out, although ClientEnd::recall() returned false
  kLost,          ///< the worker is dead and may have run user code of the call
  kWithdrawn,     ///< taken back before it started: the deadline passed, or by a CancellationToken
                  ///< or a Migration
  kOverdue,       ///< the deadline passed while it ran; unless it is a preparation
                  ///< (ipc::isPreparation) the worker is killed, a shared one later
};

/// The outcome of a request that has no answer when its channel ends. `started`: false if
/// ClientEnd::recall() has taken it back.
constexpr RequestOutcome outcomeAtDeath(bool started) {
  return started ? RequestOutcome::kLost : RequestOutcome::kNeverStarted;
}

/// The outcome of a request whose deadline has passed. `takenBack`: result of ClientEnd::recall().
constexpr RequestOutcome outcomeAtDeadline(bool takenBack) {
  return takenBack ? RequestOutcome::kWithdrawn : RequestOutcome::kOverdue;
}

/// What follows for the call that made the request.
enum class RetryDecision {
  kAnswer,        ///< Answer::take() gives the result
  kRunElsewhere,  ///< the call is made again on another worker; its caller does not notice
  kWorkerLost,    ///< WorkerLost: the call may have run in part
  kNotStarted,    ///< DeadlineExceeded or Cancelled: the call has not run and will not
  kOverdue        ///< DeadlineExceeded: the call has run, perhaps in part
};

/// `idempotent`: the call may run twice. `cancelled`: the caller took the call back; then a call
/// that has not started does not run elsewhere.
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
