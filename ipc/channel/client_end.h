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

/// A payload on its way: in the slot, or a blob in the sender's arena.
struct OutgoingPayload {
  std::span<const std::byte> inlineBytes;  ///< at most kInlineBytes; empty if there is a blob
  base::SegmentId blobSegment;
  uint64_t blobOffset = 0;
  uint64_t blobBytes = 0;
};

struct OutgoingCall {
  Operation operation = Operation::kPing;
  uint32_t flags = 0;
  OutgoingPayload payload;
};

/// A private copy of what the worker published. Nothing in it is trusted but its own bounds: it was
/// checked that inlineBytes <= kInlineBytes and that the epoch is right.
struct ReceivedCompletion {
  uint64_t sequence = 0;
  uint32_t status = 0;
  PayloadPlace payload{};
  std::byte bytes[kInlineBytes];
};

/// The client's end of a channel: publishes calls, consumes completions. Owned by the client's
/// channel object. One thread at a time may publish and one at a time consume; both may do so at
/// once. Never blocks. When the worker dies everything stays readable: drain, then settle.
class ClientEnd {
 public:
  /// `own` is a writable mapping of kClientControlBytes of zeroes, `peer` a read-only one of
  /// kWorkerControlBytes. Writes the header of `own`.
  ClientEnd(base::Epoch epoch, Mapping own, Mapping peer);

  /// True once the worker serves the channel, and its segment's header is what it must be.
  bool attached() const noexcept;
  bool headerValid() const noexcept;

  /// True if the ring can take another call. The caller sees to it that the calls that await an
  /// answer lie within kRingSlots sequence numbers: completions and recalls have that many places.
  bool canPublish() noexcept;
  /// False if what the worker says that it has taken can't be: the ring would be full for ever.
  bool submissionsConsistent() const noexcept;
  /// Publishes and wakes the worker if it sleeps; returns the call's sequence number. canPublish()
  /// must be true.
  uint64_t publish(const OutgoingCall& call) noexcept;

  /// Wakes the worker, if it sleeps, for a call that is about to be published: a worker that is
  /// woken for nothing spins a while.
  void rouse() const noexcept;

  /// Asks the worker not to start `sequence`. Returns true if it certainly has not started and
  /// never will; false if it may have: its completion (perhaps kWithdrawn) or the worker's death
  /// decides.
  bool recall(uint64_t sequence) noexcept;
  /// True if user code of `sequence` may have run an instruction.
  bool hasStarted(uint64_t sequence) const noexcept;

  /// Copies the oldest completion without consuming it. Its blob stays valid until consumed().
  Received peek(ReceivedCompletion& completion) noexcept;
  void consumed() noexcept;
  /// True if a completion lies ready (or the ring is nonsense: peek() tells).
  bool completionReady() const noexcept;

  /// For sleepUnless(), around a sleep on completionWatch().
  void announceSleep() noexcept;
  void withdrawSleep() noexcept;

  FutexWatch completionWatch() const noexcept {
    return {&peer_->completionTail, completions_.consumed()};
  }

  /// Lets the idle worker spin for that long, and tells it where the client spins.
  void allowSpin(uint32_t microseconds, uint32_t processor) noexcept;
  /// True if the worker sleeps and was last seen on the processor that this thread runs on: where
  /// it will be woken, as far as one can know, so that whoever spins there keeps it from running.
  bool workerSleepsHere() const noexcept;

  /// As the worker counts them; for statistics.
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
