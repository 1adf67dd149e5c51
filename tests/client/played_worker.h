// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "client/transport/request_draft.h"
#include "client/transport/worker_link.h"
#include "client/transport/worker_memory.h"
#include "ipc/channel/futex.h"
#include "ipc/channel/layout.h"
#include "ipc/memory/memory_object.h"
#include "ipc/tensor/value_codec.h"

namespace isopool::tests {

/// A channel of this process to a worker that the test plays, in its own shared memory.
class PlayedWorker {
 public:
  PlayedWorker() {
    // Replaces the kill function: the channel would kill the worker's process, which is this one.
    channel_->share({[this](const std::string& reason) { killed_ = reason; }, [](uint64_t) {}, 0});
  }

  client::WorkerLink& channel() { return *channel_; }
  client::WorkerMemory& memory() { return *memory_; }

  /// A call of the program, from any thread.
  client::Answer call(const client::Deadline& deadline = std::nullopt,
                      ipc::Operation operation = ipc::Operation::kPing,
                      client::CancellationToken* cancellation = nullptr,
                      client::Migration* migration = nullptr) {
    client::RequestDraft& draft = client::requestDraft();
    draft.writer.packer().pack_array(0);
    return channel_->exchange(operation, draft, deadline, cancellation, migration);
  }

  /// Publishes an answer of the worker; takes all calls that are published by then. An answer may
  /// precede its call. Answers arrive in the order of these calls.
  void answer(uint64_t sequence, ipc::CompletionStatus status, std::span<const std::byte> payload) {
    control().submissionHead = callsPublished();
    ipc::CompletionSlot& slot = control().slots[answers_ % ipc::kRingSlots];
    slot.sequence = sequence;
    slot.epoch = kEpoch.value;
    slot.status = static_cast<uint32_t>(status);
    slot.payload = {};
    slot.payload.inlineBytes = static_cast<uint32_t>(payload.size());
    std::memcpy(slot.bytes.data(), payload.data(), payload.size());
    control().startedSequence = sequence;
    control().completionTail = ++answers_;
    ipc::futexWake(control().completionTail);
  }
  void refuse(uint64_t sequence, ipc::RefusalKind kind) {
    ipc::PayloadWriter writer;
    writer.packer().pack_array(2).pack(static_cast<uint32_t>(kind)).pack("as the test wants it");
    answer(sequence, ipc::CompletionStatus::kRefused, writer.finish({}));
  }
  void answerNothing(uint64_t sequence) {
    ipc::PayloadWriter writer;
    writer.packer().pack_array(2).pack_nil().pack_array(0);
    answer(sequence, ipc::CompletionStatus::kValue, writer.finish({}));
  }

  /// Takes all calls published so far. Whether the worker sleeps is not changed.
  void take() { control().submissionHead = callsPublished(); }
  void sleep(bool sleeps = true) { control().sleeping = sleeps ? 1 : 0; }
  /// Marks the user code of this call as running.
  void start(uint64_t sequence) {
    take();
    control().startedSequence = sequence;
  }
  /// The reason with which the client asked to kill the worker. Empty if it has not.
  const std::string& killed() const { return killed_; }

  /// The number of calls that the program has published, and of answers that it has consumed.
  uint32_t callsPublished() const { return client().submissionTail; }
  uint32_t answersConsumed() const { return client().completionHead; }
  /// True if the program has tried to take this call back.
  bool recalled(uint64_t sequence) const {
    return client().recalled[sequence % ipc::kRingSlots] == sequence;
  }

 private:
  static constexpr base::Epoch kEpoch{7};

  static ipc::Mapping shared(const base::Fd& object, size_t bytes) {
    return ipc::mapShared(object, 0, bytes, ipc::Access::kReadWrite, ipc::Prefault::kNo);
  }
  ipc::WorkerControl& control() { return *reinterpret_cast<ipc::WorkerControl*>(worker_.data()); }
  const ipc::ClientControl& client() const {
    return *reinterpret_cast<const ipc::ClientControl*>(client_.data());
  }

  const base::Fd clientObject_ = ipc::createMemoryObject("client", ipc::kClientControlBytes);
  const base::Fd workerObject_ = ipc::createMemoryObject("worker", ipc::kWorkerControlBytes);
  const ipc::Mapping client_ = shared(clientObject_, ipc::kClientControlBytes);
  const ipc::Mapping worker_ = shared(workerObject_, ipc::kWorkerControlBytes);
  const std::shared_ptr<client::WorkerMemory> memory_ = std::make_shared<client::WorkerMemory>(
      kEpoch, shared(clientObject_, ipc::kClientControlBytes),
      shared(workerObject_, ipc::kWorkerControlBytes), ipc::Mapping());
  const std::shared_ptr<client::WorkerLink> channel_ =
      std::make_shared<client::WorkerLink>(memory_, ::getpid(), base::Fd(), base::Fd(),
                                           /*livenessWordWorks=*/true, /*connection=*/1);
  uint32_t answers_ = 0;
  std::string killed_;
};

}  // namespace isopool::tests
