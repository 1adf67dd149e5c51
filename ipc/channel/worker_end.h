// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ipc/channel/client_end.h"

namespace isopool::ipc {

/// A private copy of a call that a client published. Untrusted, as ReceivedCompletion.
struct ReceivedCall {
  uint64_t sequence = 0;
  uint32_t operation = 0;
  uint32_t flags = 0;
  PayloadPlace payload{};
  std::byte bytes[kInlineBytes];
};

/// Whether the worker may run a call, or the client has recalled it.
enum class Start { kRun, kRecalled };

/// What a completion answers. kUncounted are preparations, and calls that did not run: those that
/// were withdrawn, or refused before start(). Steps are counted in completedCalls, but not in
/// servedCalls, which the restart policy of shared pools reads: like a preparation, a completed
/// step (a global is found, a value made, an object loaded) does not show that the worker can serve
/// calls.
enum class Work { kCall, kStep, kUncounted };

/// The worker's end of a channel, the counterpart of ClientEnd: consumes calls and publishes
/// completions. Only the thread that holds the liveness word may use it. No member blocks. When the
/// client dies, the memory stays mapped until this object is destroyed: the supervisor reports the
/// death, the channel does not show it.
class WorkerEnd {
 public:
  /// `own` is a writable mapping of kWorkerControlBytes of zeroes, `peer` a read-only one of
  /// kClientControlBytes. Writes the header of `own`.
  WorkerEnd(base::Epoch epoch, Mapping own, Mapping peer);
  ~WorkerEnd();
  WorkerEnd(const WorkerEnd&) = delete;
  WorkerEnd& operator=(const WorkerEnd&) = delete;

  /// True if the header of the client's segment has this build's layout and this channel's epoch.
  bool headerValid() const noexcept;
  /// Locks the liveness word for the calling thread's life, then sets WorkerControl::attached: the
  /// client may begin. Throws SystemCallError.
  void attach();
  /// Releases the liveness word without the client's noticing. Only for the thread that called
  /// attach(). Afterwards nothing may be received or published; any thread may destroy this object.
  void detach() noexcept;

  /// Copies the oldest call without taking it. Its blob stays valid until the call is completed.
  Received peek(ReceivedCall& call) noexcept;
  /// Consumes the call that peek() copied: the client may reuse the slot.
  void taken() noexcept;
  /// Announces that user code of `sequence` runs now, unless the client has recalled the call.
  /// Without it the call's user code must not run: if the worker died, the client would take the
  /// call for one that can run elsewhere.
  Start start(uint64_t sequence) noexcept;
  /// Publishes the answer to `sequence` and wakes the client if it sleeps. The ring has room: the
  /// client keeps at most kRingSlots calls in flight. A blob must stay until the client has
  /// consumed the completion, see completionsConsumed(). `nanoseconds`: how long the worker had the
  /// call, for the client's decisions to spin.
  void complete(uint64_t sequence, CompletionStatus status, const OutgoingPayload& payload,
                Work work = Work::kCall, int64_t nanoseconds = 0) noexcept;

  /// Announces that code of the client runs now, if it did not before.
  void noteCode() noexcept {
    if (own_->ranCode.load(std::memory_order_relaxed) == 0) {
      own_->ranCode.store(1, std::memory_order_relaxed);
    }
  }
  /// Counts a step as a call: what it did became known after its completion.
  void countServed() noexcept;

  /// Publishes how many objects the client's handles refer to, and how many bytes these keep.
  void tellHandles(uint64_t handles, uint64_t bytes) noexcept {
    own_->handles.store(handles, std::memory_order_relaxed);
    own_->handleBytes.store(bytes, std::memory_order_relaxed);
  }

  /// True if peek() would return something else than kNothing.
  bool callReady() const noexcept;
  /// Number of completions that the client has consumed, free-running: their blobs are free.
  uint32_t completionsConsumed() const noexcept;
  uint32_t completionsPublished() const noexcept { return completions_.published(); }

  /// For sleepUnless(), around a sleep on watch().
  void announceSleep() noexcept;
  void withdrawSleep() noexcept;
  /// For futexWait(), the word (submissionTail) and its expected value: sleeps until the client
  /// publishes a call. Call it after announceSleep().
  std::pair<const SharedWord<uint32_t>*, uint32_t> watch() const noexcept {
    return {&peer_->submissionTail, submissions_.consumed()};
  }

  /// How long the client lets an idle worker spin now, in nanoseconds, at most kLongestSpin. 0 if
  /// the client spins on the worker's own processor.
  int64_t spinAllowance() const noexcept;
  /// True if the client would let the worker spin, but for being on the same processor.
  bool lacksProcessor() const noexcept;

  LeaseReturns& returns() noexcept { return own_->inputReturns; }
  const LeaseReturns& peerReturns() const noexcept { return peer_->outputReturns; }
  base::Epoch epoch() const noexcept { return epoch_; }

 private:
  void tellProcessorAndCount(Work work) noexcept;
  bool clientIsHere() const noexcept;

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
