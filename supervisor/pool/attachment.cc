// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/attachment.h"

#include <unistd.h>

#include <cstddef>
#include <utility>

#include "ipc/channel/layout.h"

namespace isopool::supervisor {

namespace {

template <typename Value>
Value readAt(const base::Fd& object, size_t offset) {
  Value value{};
  if (!object.valid() ||
      ::pread(object.get(), &value, sizeof value, static_cast<off_t>(offset)) != sizeof value) {
    return Value{};
  }
  return value;
}

}  // namespace

Attachment::Attachment(base::EventLoop& loop, ChannelMemory channelMemory)
    : memory(std::move(channelMemory)),
      deadline(loop),
      overdue(loop),
      outputBytes_(memory.outputBytes) {}

std::optional<uint32_t> Attachment::reserveSegment(uint64_t bytes, uint64_t limit) {
  if (bytes > limit || outputBytes_ > limit - bytes) return std::nullopt;
  outputBytes_ += bytes;
  return ++lastSegment_;
}

uint64_t Attachment::sharedBytes() const {
  return ipc::kClientControlBytes + ipc::kWorkerControlBytes + outputBytes_;
}

uint64_t Attachment::completedCalls() const {
  return readAt<uint64_t>(memory.workerControl, offsetof(ipc::WorkerControl, completedCalls));
}

uint32_t Attachment::queuedCalls() const {
  const auto taken =
      readAt<uint32_t>(memory.workerControl, offsetof(ipc::WorkerControl, submissionHead));
  const auto published =
      readAt<uint32_t>(memory.clientControl, offsetof(ipc::ClientControl, submissionTail));
  return published - taken;
}

uint64_t Attachment::startedSequence() const {
  return readAt<uint64_t>(memory.workerControl, offsetof(ipc::WorkerControl, startedSequence));
}

uint64_t Attachment::handles() const {
  return readAt<uint64_t>(memory.workerControl, offsetof(ipc::WorkerControl, handles));
}

uint64_t Attachment::handleBytes() const {
  return readAt<uint64_t>(memory.workerControl, offsetof(ipc::WorkerControl, handleBytes));
}

}  // namespace isopool::supervisor
