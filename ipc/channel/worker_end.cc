// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/worker_end.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "ipc/channel/futex.h"
#include "ipc/channel/life_word.h"
#include "ipc/channel/spin.h"
#include "ipc/crash_point.h"

namespace isopool::ipc {

WorkerEnd::WorkerEnd(Epoch epoch, Mapping own, Mapping peer)
    : epoch_(epoch),
      ownMapping_(std::move(own)),
      peerMapping_(std::move(peer)),
      own_(new (ownMapping_.data()) WorkerControl),
      peer_(reinterpret_cast<const ClientControl*>(peerMapping_.data())) {
  own_->header = SegmentHeader{kWorkerControlMagic, kLayoutVersion, 0, epoch.value};
  reachCrashPoint(CrashPoint::kChannelMapped);
}

WorkerEnd::~WorkerEnd() {
  detach();
  // The holder is another thread, whose list of robust mutexes goes through this memory.
  if (holdsLifeWord_) ownMapping_.release();
}

bool WorkerEnd::headerValid() const noexcept {
  const SegmentHeader header = peer_->header;
  return header.magic == kClientControlMagic && header.layoutVersion == kLayoutVersion &&
         header.epoch == epoch_.value;
}

void WorkerEnd::attach() {
  holdLifeWord(*own_);
  holdsLifeWord_ = true;
  reachCrashPoint(CrashPoint::kLifeWordHeld);
  own_->attached.store(1, std::memory_order_seq_cst);
  futexWake(own_->attached);
  reachCrashPoint(CrashPoint::kChannelAttached);
}

void WorkerEnd::detach() noexcept {
  if (holdsLifeWord_ && leaveLifeWord(*own_)) holdsLifeWord_ = false;
}

bool WorkerEnd::callReady() const noexcept {
  return peer_->submissionTail.load(std::memory_order_acquire) != consumed_;
}

Received WorkerEnd::peek(ReceivedCall& call) noexcept {
  const uint32_t tail = peer_->submissionTail.load(std::memory_order_acquire);
  if (tail == consumed_) return Received::kNothing;
  if (tail - consumed_ > kRingSlots) return Received::kPoisoned;
  const SubmissionSlot& slot = peer_->slots[consumed_ % kRingSlots];
  call.sequence = slot.sequence;
  call.operation = slot.operation;
  call.flags = slot.flags;
  call.traceId = slot.traceId;
  const uint64_t epoch = slot.epoch;
  call.payload = slot.payload;
  if (epoch != epoch_.value || call.payload.inlineBytes > kInlineBytes) return Received::kPoisoned;
  std::memcpy(call.bytes, slot.bytes.data(), call.payload.inlineBytes);
  reachCrashPoint(CrashPoint::kSubmissionCopied);
  return Received::kOne;
}

void WorkerEnd::taken() noexcept {
  own_->submissionHead.store(++consumed_, std::memory_order_release);
  reachCrashPoint(CrashPoint::kSubmissionHeadStored);
}

Start WorkerEnd::start(uint64_t sequence) noexcept {
  // Partner: ClientEnd::recall. A recalled call is announced as started too; its completion says
  // that it did not run.
  own_->startedSequence.exchange(sequence, std::memory_order_seq_cst);
  reachCrashPoint(CrashPoint::kStartedStored);
  const uint64_t recalled = peer_->recalled[sequence % kRingSlots].load(std::memory_order_seq_cst);
  return recalled == sequence ? Start::kRecalled : Start::kRun;
}

void WorkerEnd::complete(uint64_t sequence, CompletionStatus status, const OutgoingPayload& payload,
                         Work work) noexcept {
  CompletionSlot& slot = own_->slots[published_ % kRingSlots];
  slot.sequence = sequence;
  slot.epoch = epoch_.value;
  slot.status = static_cast<uint32_t>(status);
  slot.payload = PayloadPlace{static_cast<uint32_t>(payload.inlineBytes.size()),
                              payload.blobSegment.value, payload.blobOffset, payload.blobBytes};
  if (!payload.inlineBytes.empty()) {
    std::memcpy(slot.bytes.data(), payload.inlineBytes.data(), payload.inlineBytes.size());
  }
  const uint32_t processor = currentProcessor();
  if (own_->processor.load(std::memory_order_relaxed) != processor) {
    own_->processor.store(processor, std::memory_order_relaxed);
  }
  if (work == Work::kCall) {
    own_->completedCalls.store(own_->completedCalls.load(std::memory_order_relaxed) + 1,
                               std::memory_order_relaxed);
  }
  reachCrashPoint(CrashPoint::kCompletionSlotWritten);
  // Partner: ClientEnd::announceSleep.
  own_->completionTail.exchange(++published_, std::memory_order_seq_cst);
  reachCrashPoint(CrashPoint::kCompletionTailStored);
  if (peer_->sleeping.load(std::memory_order_seq_cst) != 0) futexWake(own_->completionTail);
  reachCrashPoint(CrashPoint::kCompletionWoken);
}

uint32_t WorkerEnd::completionsConsumed() const noexcept {
  return peer_->completionHead.load(std::memory_order_acquire);
}

void WorkerEnd::announceSleep() noexcept {
  own_->sleeping.exchange(1, std::memory_order_seq_cst);
  reachCrashPoint(CrashPoint::kSleepAnnounced);
}

void WorkerEnd::withdrawSleep() noexcept {
  own_->sleeping.store(0, std::memory_order_relaxed);
  reachCrashPoint(CrashPoint::kSleepWithdrawn);
}

int64_t WorkerEnd::spinAllowance() const noexcept {
  const int64_t allowance = int64_t{peer_->spinAllowance.load(std::memory_order_relaxed)} * 1000;
  if (peer_->processor.load(std::memory_order_relaxed) == currentProcessor()) return 0;
  return std::min(allowance, kLongestSpin);
}

}  // namespace isopool::ipc
