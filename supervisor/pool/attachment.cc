// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/attachment.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "ipc/channel/layout.h"
#include "ipc/crash_point.h"
#include "ipc/memory/memory_object.h"

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

void Attachment::granted(uint32_t number, uint64_t bytes, std::shared_ptr<const base::Fd> object) {
  outputs_[number] = {.object = std::move(object), .bytes = bytes};
}

bool Attachment::retire(uint32_t number) {
  const auto found = outputs_.find(number);
  if (found == outputs_.end() || found->second.state != OutputSegment::State::kGranted) {
    return false;
  }
  found->second.state = OutputSegment::State::kAwaitsClient;
  return true;
}

bool Attachment::unmappedByClient(uint32_t number) {
  const auto found = outputs_.find(number);
  if (found == outputs_.end() || found->second.state != OutputSegment::State::kAwaitsClient) {
    return false;
  }
  found->second.state = OutputSegment::State::kUnmapped;
  return true;
}

void Attachment::closeRetired() {
  for (auto entry = outputs_.begin(); entry != outputs_.end();) {
    const OutputSegment& segment = entry->second;
    // The kernel grants the seal only if there is no writable mapping, and none can be made then.
    if (segment.state == OutputSegment::State::kUnmapped &&
        ipc::releasePages(segment.object->get(), 0, segment.bytes) &&
        ipc::isWritableNoMore(*segment.object)) {
      outputBytes_ -= segment.bytes;
      entry = outputs_.erase(entry);
      ipc::reachCrashPoint(ipc::CrashPoint::kOutputSegmentClosed);
    } else {
      ++entry;
    }
  }
}

bool Attachment::awaitsClient() const {
  return std::any_of(outputs_.begin(), outputs_.end(), [](const auto& entry) {
    return entry.second.state == OutputSegment::State::kAwaitsClient;
  });
}

uint64_t Attachment::sharedBytes() const {
  return ipc::kClientControlBytes + ipc::kWorkerControlBytes + outputBytes_;
}

uint64_t Attachment::servedCalls() const {
  return readAt<uint64_t>(memory.workerControl, offsetof(ipc::WorkerControl, servedCalls));
}

bool Attachment::ranCode() const {
  return readAt<uint32_t>(memory.workerControl, offsetof(ipc::WorkerControl, ranCode)) != 0;
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
