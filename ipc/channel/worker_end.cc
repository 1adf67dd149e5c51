// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/worker_end.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "ipc/channel/futex.h"
#include "ipc/channel/liveness_word.h"
#include "ipc/channel/spin.h"
#include "ipc/crash_point.h"

namespace isopool::ipc {

WorkerEnd::WorkerEnd(base::Epoch epoch, Mapping own, Mapping peer)
    : epoch_(epoch),
      ownMapping_(std::move(own)),
      peerMapping_(std::move(peer)),
      // Not constructed: that would store zeroes over zeroes, and the client may read already.
      own_(reinterpret_cast<WorkerControl*>(ownMapping_.data())),
      peer_(reinterpret_cast<const ClientControl*>(peerMapping_.data())),
      submissions_(peer_->slots, peer_->submissionTail, own_->submissionHead, own_->sleeping,
                   CrashPoint::kSubmissionHeadStored),
      completions_(own_->slots, own_->completionTail, peer_->completionHead, peer_->sleeping,
                   {CrashPoint::kCompletionSlotWritten, CrashPoint::kCompletionTailStored,
                    CrashPoint::kCompletionWoken}) {
  own_->header = SegmentHeader{kWorkerControlMagic, kLayoutVersion, 0, epoch.value};
  reachCrashPoint(CrashPoint::kChannelMapped);
}

WorkerEnd::~WorkerEnd() {
  detach();
  // detach() has failed: another thread holds the word, or there was no memory. The holder's list
  // of robust mutexes goes through this memory, so it stays mapped.
  if (holdsLivenessWord_) ownMapping_.release();
}

bool WorkerEnd::headerValid() const noexcept {
  const SegmentHeader header = peer_->header;
  return header.magic == kClientControlMagic && header.layoutVersion == kLayoutVersion &&
         header.epoch == epoch_.value;
}

void WorkerEnd::attach() {
  holdLivenessWord(*own_);
  holdsLivenessWord_ = true;
  reachCrashPoint(CrashPoint::kLivenessWordHeld);
  own_->attached.store(1, std::memory_order_seq_cst);
  futexWake(own_->attached);
  reachCrashPoint(CrashPoint::kChannelAttached);
}

void WorkerEnd::detach() noexcept {
  if (holdsLivenessWord_ && leaveLivenessWord(*own_)) holdsLivenessWord_ = false;
}

bool WorkerEnd::callReady() const noexcept { return submissions_.ready(); }

Received WorkerEnd::peek(ReceivedCall& call) noexcept {
  const Received received = submissions_.peek([&](const SubmissionSlot& slot) {
    call.sequence = slot.sequence;
    call.operation = slot.operation;
    call.flags = slot.flags;
    const uint64_t epoch = slot.epoch;
    call.payload = slot.payload;
    if (epoch != epoch_.value || call.payload.inlineBytes > kInlineBytes) return false;
    std::memcpy(call.bytes, slot.bytes.data(), call.payload.inlineBytes);
    return true;
  });
  if (received == Received::kOne) reachCrashPoint(CrashPoint::kSubmissionCopied);
  return received;
}

void WorkerEnd::taken() noexcept { submissions_.consume(); }

Start WorkerEnd::start(uint64_t sequence) noexcept {
  const bool runs = startCall<SharedMemory>(own_->startedSequence,
                                            peer_->recalled[sequence % kRingSlots], sequence);
  return runs ? Start::kRun : Start::kRecalled;
}

void WorkerEnd::complete(uint64_t sequence, CompletionStatus status, const OutgoingPayload& payload,
                         Work work, int64_t nanoseconds) noexcept {
  completions_.publish([&](CompletionSlot& slot) {
    slot.sequence = sequence;
    slot.epoch = epoch_.value;
    slot.status = static_cast<uint32_t>(status);
    slot.workNanoseconds = static_cast<uint32_t>(
        std::clamp<int64_t>(nanoseconds, 0, std::numeric_limits<uint32_t>::max()));
    slot.payload = PayloadPlace{static_cast<uint32_t>(payload.inlineBytes.size()),
                                payload.blobSegment.value, payload.blobOffset, payload.blobBytes};
    if (!payload.inlineBytes.empty()) {
      std::memcpy(slot.bytes.data(), payload.inlineBytes.data(), payload.inlineBytes.size());
    }
    tellProcessorAndCount(work);
    reachCrashPoint(CrashPoint::kCompletionCounted);
  });
}

void WorkerEnd::tellProcessorAndCount(Work work) noexcept {
  const uint32_t processor = currentProcessor();
  if (own_->processor.load(std::memory_order_relaxed) != processor) {
    own_->processor.store(processor, std::memory_order_relaxed);
  }
  if (work == Work::kUncounted) return;
  own_->completedCalls.store(own_->completedCalls.load(std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
  if (work == Work::kCall) countServed();
}

void WorkerEnd::countServed() noexcept {
  own_->servedCalls.store(own_->servedCalls.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
}

uint32_t WorkerEnd::completionsConsumed() const noexcept { return completions_.consumed(); }

void WorkerEnd::announceSleep() noexcept { submissions_.announceSleep(); }

void WorkerEnd::withdrawSleep() noexcept { submissions_.withdrawSleep(); }

int64_t WorkerEnd::spinAllowance() const noexcept {
  const int64_t allowance = int64_t{peer_->spinAllowance.load(std::memory_order_relaxed)} * 1000;
  if (clientIsHere()) return 0;
  return std::min(allowance, kLongestSpin);
}

bool WorkerEnd::lacksProcessor() const noexcept {
  return peer_->spinAllowance.load(std::memory_order_relaxed) != 0 && clientIsHere();
}

bool WorkerEnd::clientIsHere() const noexcept {
  return peer_->processor.load(std::memory_order_relaxed) == currentProcessor();
}

}  // namespace isopool::ipc
