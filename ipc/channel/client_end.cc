// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/client_end.h"

#include <cstring>
#include <new>

#include "ipc/crash_point.h"

namespace isopool::ipc {

ClientEnd::ClientEnd(Epoch epoch, Mapping own, Mapping peer)
    : epoch_(epoch),
      ownMapping_(std::move(own)),
      peerMapping_(std::move(peer)),
      own_(new (ownMapping_.data()) ClientControl),
      peer_(reinterpret_cast<const WorkerControl*>(peerMapping_.data())) {
  own_->header = SegmentHeader{kClientControlMagic, kLayoutVersion, 0, epoch.value};
}

bool ClientEnd::attached() const noexcept {
  return peer_->attached.load(std::memory_order_acquire) != 0;
}

bool ClientEnd::headerValid() const noexcept {
  const SegmentHeader header = peer_->header;
  return header.magic == kWorkerControlMagic && header.layoutVersion == kLayoutVersion &&
         header.epoch == epoch_.value;
}

bool ClientEnd::canPublish() const noexcept {
  // A hostile head can only make us overwrite slots that the worker has not read: its own loss.
  return published_ - peer_->submissionHead.load(std::memory_order_acquire) < kRingSlots;
}

uint64_t ClientEnd::publish(const OutgoingCall& call) noexcept {
  const uint64_t sequence = nextSequence_++;
  SubmissionSlot& slot = own_->slots[published_ % kRingSlots];
  slot.sequence = sequence;
  slot.epoch = epoch_.value;
  slot.operation = static_cast<uint32_t>(call.operation);
  slot.flags = call.flags;
  slot.traceId = call.traceId;
  slot.payload =
      PayloadPlace{static_cast<uint32_t>(call.payload.inlineBytes.size()),
                   call.payload.blobSegment.value, call.payload.blobOffset, call.payload.blobBytes};
  if (!call.payload.inlineBytes.empty()) {
    std::memcpy(slot.bytes.data(), call.payload.inlineBytes.data(),
                call.payload.inlineBytes.size());
  }
  reachCrashPoint(CrashPoint::kSubmissionSlotWritten);
  // Partner: WorkerEnd::announceSleep. Either we see that it sleeps or it sees the new tail.
  own_->submissionTail.exchange(++published_, std::memory_order_seq_cst);
  reachCrashPoint(CrashPoint::kSubmissionTailStored);
  if (peer_->sleeping.load(std::memory_order_seq_cst) != 0) futexWake(own_->submissionTail);
  reachCrashPoint(CrashPoint::kSubmissionWoken);
  return sequence;
}

bool ClientEnd::recall(uint64_t sequence) noexcept {
  // Partner: WorkerEnd::start. At least one side sees the other's word.
  own_->recalled[sequence % kRingSlots].exchange(sequence, std::memory_order_seq_cst);
  reachCrashPoint(CrashPoint::kRecallStored);
  return !hasStarted(sequence);
}

bool ClientEnd::hasStarted(uint64_t sequence) const noexcept {
  return peer_->startedSequence.load(std::memory_order_seq_cst) >= sequence;
}

bool ClientEnd::completionReady() const noexcept {
  return peer_->completionTail.load(std::memory_order_acquire) != consumed_;
}

Received ClientEnd::peek(ReceivedCompletion& completion) noexcept {
  const uint32_t tail = peer_->completionTail.load(std::memory_order_acquire);
  if (tail == consumed_) return Received::kNothing;
  if (tail - consumed_ > kRingSlots) return Received::kPoisoned;
  const CompletionSlot& slot = peer_->slots[consumed_ % kRingSlots];
  completion.sequence = slot.sequence;
  completion.status = slot.status;
  const uint64_t epoch = slot.epoch;
  completion.payload = slot.payload;
  if (epoch != epoch_.value || completion.payload.inlineBytes > kInlineBytes) {
    return Received::kPoisoned;
  }
  std::memcpy(completion.bytes, slot.bytes.data(), completion.payload.inlineBytes);
  return Received::kOne;
}

void ClientEnd::consumed() noexcept {
  own_->completionHead.store(++consumed_, std::memory_order_release);
  reachCrashPoint(CrashPoint::kCompletionHeadStored);
}

void ClientEnd::announceSleep() noexcept {
  // Partner: WorkerEnd::complete.
  own_->sleeping.exchange(1, std::memory_order_seq_cst);
  reachCrashPoint(CrashPoint::kSleepAnnounced);
}

void ClientEnd::withdrawSleep() noexcept {
  own_->sleeping.store(0, std::memory_order_relaxed);
  reachCrashPoint(CrashPoint::kSleepWithdrawn);
}

void ClientEnd::allowSpin(uint32_t microseconds, uint32_t processor) noexcept {
  if (own_->spinAllowance.load(std::memory_order_relaxed) != microseconds) {
    own_->spinAllowance.store(microseconds, std::memory_order_relaxed);
  }
  if (own_->processor.load(std::memory_order_relaxed) != processor) {
    own_->processor.store(processor, std::memory_order_relaxed);
  }
}

}  // namespace isopool::ipc
