// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>

#include "client/transport/deadline.h"
#include "client/transport/request_outcome.h"
#include "ipc/tensor/value_types.h"
#include "isopool/errors.h"

namespace isopool::client {

class WorkerLink;
struct PendingRequest;

/// A value is of a kind that can't be passed between processes. Caught inside the library where
/// that does not matter.
class UnsupportedValue : public Error {
 public:
  using Error::Error;
};

/// The worker no longer has an object that this process expected there: another thread unloaded it.
/// Caught inside the library, which defines the object again.
class ObjectUnloaded : public Error {
 public:
  using Error::Error;
};

/// The answer to a request. Until take() or the destructor it holds a slot of the channel, for
/// which other threads may wait: its thread must not wait for a lock meanwhile. It keeps the
/// channel alive. For the thread that made the request only.
class Answer {
 public:
  Answer(Answer&& other) noexcept;
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  Answer& operator=(Answer&&) = delete;
  ~Answer();

  RequestOutcome outcome() const { return outcome_; }
  /// The request's number on its channel; 0 if it was not sent.
  uint64_t sequence() const { return sequence_; }
  /// The answer's value (None for most operations). Its tensors may lie in the worker's memory; the
  /// worker's death does not change or unmap them. Call it once, and only if outcome() is
  /// kAnswered. If outcome() is kAnswered, it must be called: what the worker lent with the answer
  /// is given back by the tensors.
  ///
  /// Throws RemoteError for a Python exception and for SystemExit. For a refusal of the worker
  /// throws ArenaFull, LimitExceeded, ObjectUnloaded, UnsupportedValue, else Error. Throws
  /// WorkerLost if the worker died before the result's memory could be mapped. Throws
  /// DeadlineExceeded, with started() true, if the request's deadline passes while many values are
  /// read. If the answer is invalid, kills the worker and throws Error. The slot is free in every
  /// case.
  ///
  /// Waits up to half a second if the supervisor's message about the result's memory is late.
  at::IValue take();

 private:
  friend class WorkerLink;
  Answer(std::shared_ptr<WorkerLink> channel, PendingRequest* request, uint64_t sequence,
         RequestOutcome outcome, const Deadline& deadline = std::nullopt);
  void giveUpSlot();
  std::shared_ptr<WorkerLink> channel_;
  PendingRequest* request_;  // null if nothing was sent, the request was given up, or after take()
  uint64_t sequence_;
  RequestOutcome outcome_;
  Deadline deadline_;
};

}  // namespace isopool::client
