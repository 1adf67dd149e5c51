// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/channel/client_end.h"

namespace isopool::ipc {

/// A private copy of a call as a client published it; checked as ReceivedCompletion is.
struct ReceivedCall {
  uint64_t sequence = 0;
  uint32_t operation = 0;
  uint32_t flags = 0;
  PayloadPlace payload{};
  std::byte bytes[kInlineBytes];
};

enum class Start { kRun, kRecalled };

/// What a completion answers. Preparing a worker says nothing about whether it can serve, so it is
/// not counted where the restart policy looks.
enum class Work { kCall, kPreparation };

/// The worker's end of a channel, the mirror of ClientEnd. One thread uses it, the one that holds
/// the liveness word.
class WorkerEnd {
 public:
  /// `own` is a writable mapping of kWorkerControlBytes of zeroes, `peer` a read-only one of
  /// kClientControlBytes. Writes the header of `own`.
  WorkerEnd(base::Epoch epoch, Mapping own, Mapping peer);
  ~WorkerEnd();
  WorkerEnd(const WorkerEnd&) = delete;
  WorkerEnd& operator=(const WorkerEnd&) = delete;

  bool headerValid() const noexcept;
  /// Locks the liveness word for the calling thread's life and lets the client begin. Throws
  /// SystemCallError.
  void attach();
  /// Lets the liveness word go, which the client does not learn. By the thread that attached; this
  /// may then be destroyed by any thread. Nothing is received or published any more.
  void detach() noexcept;

  /// Copies the oldest call without taking it. Its blob stays valid until the call is completed.
  Received peek(ReceivedCall& call) noexcept;
  /// Takes over the call that peek() copied: the client may reuse the slot.
  void taken() noexcept;
  /// Announces that user code of `sequence` runs now, unless the client took the call back.
  Start start(uint64_t sequence) noexcept;
  /// Publishes the answer to `sequence` and wakes the client if it sleeps.
  void complete(uint64_t sequence, CompletionStatus status, const OutgoingPayload& payload,
                Work work = Work::kCall) noexcept;

  /// What the client's handles refer to now.
  void tellHandles(uint64_t handles, uint64_t bytes) noexcept {
    own_->handles.store(handles, std::memory_order_relaxed);
    own_->handleBytes.store(bytes, std::memory_order_relaxed);
  }

  bool callReady() const noexcept;
  /// Completions that the client has consumed so far, free-running: blobs of earlier ones are free.
  uint32_t completionsConsumed() const noexcept;
  uint32_t completionsPublished() const noexcept { return completions_.published(); }

  /// As in ClientEnd. The watch is of submissionTail.
  void announceSleep() noexcept;
  void withdrawSleep() noexcept;
  /// For futexWait: sleeps until a call comes. To be built after announceSleep().
  std::pair<const SharedWord<uint32_t>*, uint32_t> watch() const noexcept {
    return {&peer_->submissionTail, submissions_.consumed()};
  }

  /// How long the client lets an idle worker spin now, in nanoseconds: 0 if it spins on our own
  /// processor.
  int64_t spinAllowance() const noexcept;

  LeaseReturns& returns() noexcept { return own_->inputReturns; }
  const LeaseReturns& peerReturns() const noexcept { return peer_->outputReturns; }
  base::Epoch epoch() const noexcept { return epoch_; }

 private:
  void tellProcessorAndCount(Work work) noexcept;

  base::Epoch epoch_;
  Mapping ownMapping_;
  Mapping peerMapping_;
  WorkerControl* own_;
  const ClientControl* peer_;
  bool holdsLivenessWord_ = false;
  RingReader<SharedMemory, SubmissionSlot, kRingSlots> submissions_;
  RingWriter<SharedMemory, CompletionSlot, kRingSlots> completions_;
};

}  // namespace isopool::ipc
