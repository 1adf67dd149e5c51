// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/ids.h"
#include "ipc/channel/futex.h"
#include "ipc/channel/layout.h"
#include "ipc/channel/operation.h"
#include "ipc/channel/ring.h"
#include "ipc/channel/shared_memory.h"
#include "ipc/memory/memory_object.h"

namespace isopool::ipc {

/// A payload to send: bytes for the slot, or a blob in the sender's arena.
struct OutgoingPayload {
  std::span<const std::byte> inlineBytes;  ///< at most kInlineBytes; empty if there is a blob
  base::SegmentId blobSegment;
  uint64_t blobOffset = 0;
  uint64_t blobBytes = 0;
};

/// A call to publish. The payload is copied into the ring, so it need not outlive publish(); a blob
/// must not change until the call has ended.
struct OutgoingCall {
  Operation operation = Operation::kPing;
  uint32_t flags = 0;
  OutgoingPayload payload;
};

/// A private copy of what the worker published. Untrusted, because the worker wrote it: only its
/// epoch and inlineBytes <= kInlineBytes have been checked.
struct ReceivedCompletion {
  uint64_t sequence = 0;
  uint32_t status = 0;
  uint32_t workNanoseconds = 0;  ///< as the worker states it
  PayloadPlace payload{};
  std::byte bytes[kInlineBytes];
};

/// The client's end of a channel: publishes calls and consumes completions. The client's
/// WorkerMemory owns it. One thread at a time may publish, and one thread at a time, the same or
/// another, may consume. No member blocks. When the worker dies, the memory stays mapped and
/// readable: drain the ring, then settle the calls that have no outcome.
class ClientEnd {
 public:
  /// `own` is a writable mapping of kClientControlBytes of zeroes, `peer` a read-only one of
  /// kWorkerControlBytes. Writes the header of `own`.
  ClientEnd(base::Epoch epoch, Mapping own, Mapping peer);

  /// True once the worker serves the channel.
  bool attached() const noexcept;
  /// True if the header of the worker's segment has this build's layout and this channel's epoch.
  bool headerValid() const noexcept;

  /// True if the ring can take another call. The caller must keep the calls that await an answer
  /// within kRingSlots sequence numbers: completions and recalls have that many slots.
  bool canPublish() noexcept;
  /// False if the worker's count of taken calls is impossible: then the ring would stay full.
  bool submissionsConsistent() const noexcept;
  /// Publishes and wakes the worker if it sleeps; returns the call's sequence number. canPublish()
  /// must be true.
  uint64_t publish(const OutgoingCall& call) noexcept;

  /// Wakes the worker, if it sleeps, shortly before a call is published: a worker that is woken
  /// without a call spins for a while.
  void rouse() const noexcept;

  /// Asks the worker not to start `sequence`. Returns true if the call has not started and never
  /// will. Returns false if it may have started: then its completion (perhaps kWithdrawn) or the
  /// worker's death decides. Any thread, also while others publish and consume, as long as
  /// `sequence` is in flight.
  bool recall(uint64_t sequence) noexcept;
  /// True if recall() was called for `sequence`: no other call may have the completion kWithdrawn.
  bool recalled(uint64_t sequence) const noexcept;
  /// True if user code of `sequence` may have run an instruction. Final once the worker is dead.
  /// Any thread.
  bool hasStarted(uint64_t sequence) const noexcept;

  /// Copies the oldest completion without consuming it. Its blob stays valid until consumed(). If
  /// it returns kPoisoned, the channel is unusable: kill the worker.
  Received peek(ReceivedCompletion& completion) noexcept;
  /// Consumes the completion that peek() copied: the worker may reuse its slot and its blob.
  void consumed() noexcept;
  /// True if peek() would return something else than kNothing: a completion, or a poisoned ring.
  bool completionReady() const noexcept;

  /// For sleepUnless(), around a sleep on completionWatch().
  void announceSleep() noexcept;
  void withdrawSleep() noexcept;

  /// For futexWait(): sleeps while the worker publishes no further completion.
  FutexWatch completionWatch() const noexcept {
    return {&peer_->completionTail, completions_.consumed()};
  }

  /// Lets the idle worker spin for this long, and stores the processor on which the client spins.
  void allowSpin(uint32_t microseconds, uint32_t processor) noexcept;
  /// True if the worker sleeps, or is about to sleep.
  bool workerSleeps() const noexcept {
    return peer_->sleeping.load(std::memory_order_relaxed) != 0;
  }
  /// True if the worker sleeps and last ran on the processor of the calling thread. The kernel will
  /// probably wake it there, so a thread that spins there would keep it from running.
  bool workerSleepsHere() const noexcept;

  /// The worker's own count of completed calls. Untrusted; for statistics.
  uint64_t completedCalls() const noexcept {
    return peer_->completedCalls.load(std::memory_order_relaxed);
  }

  const WorkerControl& peer() const noexcept { return *peer_; }
  LeaseReturns& returns() noexcept { return own_->outputReturns; }
  base::Epoch epoch() const noexcept { return epoch_; }

 private:
  base::Epoch epoch_;
  Mapping ownMapping_;
  Mapping peerMapping_;
  ClientControl* own_;
  const WorkerControl* peer_;
  RingWriter<SharedMemory, SubmissionSlot, kRingSlots> submissions_;
  RingReader<SharedMemory, CompletionSlot, kRingSlots> completions_;
  uint64_t nextSequence_ = 1;
};

}  // namespace isopool::ipc
