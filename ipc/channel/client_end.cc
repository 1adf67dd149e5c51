// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/client_end.h"

#include <cstring>

#include "ipc/channel/spin.h"
#include "ipc/crash_point.h"

namespace isopool::ipc {

ClientEnd::ClientEnd(base::Epoch epoch, Mapping own, Mapping peer)
    : epoch_(epoch),
      ownMapping_(std::move(own)),
      peerMapping_(std::move(peer)),
      // Not constructed: that would store zeroes over zeroes, and the worker may read already.
      own_(reinterpret_cast<ClientControl*>(ownMapping_.data())),
      peer_(reinterpret_cast<const WorkerControl*>(peerMapping_.data())),
      submissions_(own_->slots, own_->submissionTail, peer_->submissionHead, peer_->sleeping,
                   {CrashPoint::kSubmissionSlotWritten, CrashPoint::kSubmissionTailStored,
                    CrashPoint::kSubmissionWoken}),
      completions_(peer_->slots, peer_->completionTail, own_->completionHead, own_->sleeping,
                   CrashPoint::kCompletionHeadStored) {
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

bool ClientEnd::canPublish() noexcept { return submissions_.hasRoom(); }

bool ClientEnd::submissionsConsistent() const noexcept { return submissions_.consistent(); }

uint64_t ClientEnd::publish(const OutgoingCall& call) noexcept {
  const uint64_t sequence = nextSequence_++;
  submissions_.publish([&](SubmissionSlot& slot) {
    slot.sequence = sequence;
    slot.epoch = epoch_.value;
    slot.operation = static_cast<uint32_t>(call.operation);
    slot.flags = call.flags;
    slot.payload = PayloadPlace{static_cast<uint32_t>(call.payload.inlineBytes.size()),
                                call.payload.blobSegment.value, call.payload.blobOffset,
                                call.payload.blobBytes};
    if (!call.payload.inlineBytes.empty()) {
      std::memcpy(slot.bytes.data(), call.payload.inlineBytes.data(),
                  call.payload.inlineBytes.size());
    }
  });
  return sequence;
}

bool ClientEnd::recall(uint64_t sequence) noexcept {
  return recallCall<SharedMemory>(own_->recalled[sequence % kRingSlots], peer_->startedSequence,
                                  sequence);
}

bool ClientEnd::recalled(uint64_t sequence) const noexcept {
  return own_->recalled[sequence % kRingSlots].load(std::memory_order_relaxed) == sequence;
}

void ClientEnd::rouse() const noexcept {
  if (peer_->sleeping.load(std::memory_order_relaxed) != 0) futexWake(own_->submissionTail);
}

bool ClientEnd::hasStarted(uint64_t sequence) const noexcept {
  return mayHaveStarted<SharedMemory>(peer_->startedSequence, sequence);
}

bool ClientEnd::completionReady() const noexcept { return completions_.ready(); }

Received ClientEnd::peek(ReceivedCompletion& completion) noexcept {
  return completions_.peek([&](const CompletionSlot& slot) {
    completion.sequence = slot.sequence;
    completion.status = slot.status;
    completion.workNanoseconds = slot.workNanoseconds;
    const uint64_t epoch = slot.epoch;
    completion.payload = slot.payload;
    if (epoch != epoch_.value || completion.payload.inlineBytes > kInlineBytes) return false;
    std::memcpy(completion.bytes, slot.bytes.data(), completion.payload.inlineBytes);
    return true;
  });
}

void ClientEnd::consumed() noexcept { completions_.consume(); }

void ClientEnd::announceSleep() noexcept { completions_.announceSleep(); }

void ClientEnd::withdrawSleep() noexcept { completions_.withdrawSleep(); }

void ClientEnd::allowSpin(uint32_t microseconds, uint32_t processor) noexcept {
  if (own_->spinAllowance.load(std::memory_order_relaxed) != microseconds) {
    own_->spinAllowance.store(microseconds, std::memory_order_relaxed);
  }
  if (own_->processor.load(std::memory_order_relaxed) != processor) {
    own_->processor.store(processor, std::memory_order_relaxed);
  }
  reachCrashPoint(CrashPoint::kSpinAllowanceStored);
}

bool ClientEnd::workerSleepsHere() const noexcept {
  return workerSleeps() && peer_->processor.load(std::memory_order_relaxed) == currentProcessor();
}

}  // namespace isopool::ipc
