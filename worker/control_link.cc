// SPDX-License-Identifier: BSD-3-Clause
#include "worker/control_link.h"

#include <unistd.h>

#include <algorithm>

#include "ipc/crash_point.h"
#include "worker/last_words.h"

namespace isopool::worker {

namespace {

// The supervisor is gone or speaks nonsense: there is nobody to work for.
[[noreturn]] void leave() { ::_exit(0); }

const ipc::Fd& descriptor(const ipc::Frame& frame, size_t index, size_t bytes, ipc::Seal seal) {
  if (index >= frame.descriptors.size() ||
      !ipc::memoryObjectHas(frame.descriptors[index], bytes, seal)) {
    throw ipc::ProtocolError("memory that is not what the message says");
  }
  return frame.descriptors[index];
}

}  // namespace

ControlLink::ControlLink(ipc::Epoch epoch, ipc::Fd socket, const ipc::Fd& bell,
                         RoutedBlocks& routed)
    : epoch_(epoch),
      socket_(std::move(socket)),
      bell_(ipc::mapShared(bell, 0, ipc::kPageBytes, ipc::Access::kReadOnly, ipc::Prefault::kYes)),
      routed_(routed) {}

void ControlLink::announceReady() {
  if (socket_.send(ipc::WorkerReady{epoch_.value}) != ipc::SendResult::kSent) leave();
  ipc::reachCrashPoint(ipc::CrashPoint::kWorkerReady);
}

void ControlLink::readAll() {
  heard_ = bell().load(std::memory_order_acquire);
  try {
    for (;;) {
      const auto received = socket_.receive();
      while (auto frame = socket_.next()) apply(*frame);
      if (received == ipc::ReceiveResult::kPeerGone) leave();
      if (received == ipc::ReceiveResult::kWouldBlock) return;
    }
  } catch (const std::exception& error) {
    complain(std::string("isopool-worker: bad message from the supervisor: ") + error.what() + "\n");
    ::_exit(1);
  }
}

bool ControlLink::readUntil(const std::function<bool()>& done,
                            std::chrono::milliseconds patience) {
  const auto giveUp = std::chrono::steady_clock::now() + patience;
  readAll();
  while (!done()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        giveUp - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    socket_.waitReadable(left);
    readAll();
  }
  return true;
}

ClientChannel* ControlLink::find(uint64_t client) {
  for (const auto& channel : channels_) {
    if (channel->memory->client == client) return channel.get();
  }
  return nullptr;
}

void ControlLink::requestOutputSegment(uint64_t client, size_t bytes) noexcept {
  // Without patience: a miss costs a copy, a wait would cost the call.
  socket_.send(ipc::RequestOutputSegment{client, bytes}, {}, std::chrono::milliseconds(0));
  ipc::reachCrashPoint(ipc::CrashPoint::kOutputSegmentRequested);
}

void ControlLink::apply(ipc::Frame& frame) {
  switch (frame.type) {
    case ipc::MessageType::kAttachChannel:
      return attach(ipc::decodeMessage<ipc::AttachChannel>(frame), frame);
    case ipc::MessageType::kDetachChannel:
      return detach(ipc::decodeMessage<ipc::DetachChannel>(frame).client);
    case ipc::MessageType::kMapInputSegment: {
      const auto message = ipc::decodeMessage<ipc::MapInputSegment>(frame);
      descriptor(frame, 0, message.bytes, ipc::Seal::kFixedSize);
      if (ClientChannel* channel = find(message.client)) {
        channel->memory->inputs.add(ipc::SegmentId(message.segment),
                                    std::move(frame.descriptors[0]), message.bytes);
      } else {
        early_.push_back(std::move(frame));
      }
      return;
    }
    case ipc::MessageType::kMapPackage: {
      const auto message = ipc::decodeMessage<ipc::MapPackage>(frame);
      descriptor(frame, 0, message.bytes, ipc::Seal::kReadOnly);
      if (ClientChannel* channel = find(message.client)) {
        if (channel->packages.find(ipc::PackageId(message.package)) == nullptr) {
          channel->packages.add(std::make_unique<Package>(ipc::PackageId(message.package),
                                                          message.name,
                                                          std::move(frame.descriptors[0]),
                                                          message.bytes));
        }
      } else {
        early_.push_back(std::move(frame));
      }
      return;
    }
    case ipc::MessageType::kUnmapPackage: {
      const auto message = ipc::decodeMessage<ipc::UnmapPackage>(frame);
      if (ClientChannel* channel = find(message.client)) {
        channel->packages.remove(ipc::PackageId(message.package));
      }
      return;
    }
    case ipc::MessageType::kAddOutputSegment: {
      const auto message = ipc::decodeMessage<ipc::AddOutputSegment>(frame);
      descriptor(frame, 0, message.bytes, ipc::Seal::kFixedSize);
      if (ClientChannel* channel = find(message.client)) {
        channel->memory->output.addSegment(ipc::SegmentId(message.segment),
                                           std::move(frame.descriptors[0]), message.bytes);
      }
      return;
    }
    case ipc::MessageType::kRefuseOutputSegment: {
      const auto message = ipc::decodeMessage<ipc::RefuseOutputSegment>(frame);
      if (ClientChannel* channel = find(message.client)) channel->memory->output.segmentRefused();
      return;
    }
    default:
      throw ipc::ProtocolError("a message that is not for workers");
  }
}

void ControlLink::attach(const ipc::AttachChannel& message, ipc::Frame& frame) {
  const ipc::Fd& theirs = descriptor(frame, 0, ipc::kClientControlBytes, ipc::Seal::kSingleWriter);
  const ipc::Fd& ours = descriptor(frame, 1, ipc::kWorkerControlBytes, ipc::Seal::kFixedSize);
  descriptor(frame, 2, message.outputBytes, ipc::Seal::kFixedSize);
  auto memory = std::make_shared<ChannelMemory>(
      message.client, ipc::Epoch(message.epoch),
      ipc::mapShared(ours, 0, ipc::kWorkerControlBytes, ipc::Access::kReadWrite,
                     ipc::Prefault::kYes),
      ipc::mapShared(theirs, 0, ipc::kClientControlBytes, ipc::Access::kReadOnly,
                     ipc::Prefault::kYes),
      *this);
  ipc::sealMemoryObject(ours, ipc::Seal::kSingleWriter);
  if (!memory->end.headerValid()) throw ipc::ProtocolError("a client of another layout");
  const auto range = memory->output.arena().addressRange();
  if (!routed_.add(memory->output, range.first, range.second)) {
    throw ipc::ProtocolError("more clients than one worker's life has room for");
  }
  memory->output.addSegment(ipc::SegmentId(1), std::move(frame.descriptors[2]),
                            message.outputBytes);
  channels_.push_back(std::make_unique<ClientChannel>(memory));
  // What was announced before the channel itself.
  std::vector<ipc::Frame> early;
  early.swap(early_);
  for (ipc::Frame& each : early) apply(each);
  memory->end.attach();
  if (socket_.send(ipc::ChannelAttached{message.client}) != ipc::SendResult::kSent) leave();
}

void ControlLink::detach(uint64_t client) {
  const auto found = std::find_if(channels_.begin(), channels_.end(), [&](const auto& channel) {
    return channel->memory->client == client;
  });
  if (found == channels_.end()) return;
  const std::unique_ptr<ClientChannel> channel = std::move(*found);
  channels_.erase(found);
  channel->handles.clear();
  channel->objects.clear();
  channel->packages.clear();
  channel->memory->borrowed.detach(*channel->memory);
  channel->memory->output.detach();
  leftBehind_.push_back(channel->memory);
  ipc::reachCrashPoint(ipc::CrashPoint::kChannelDetached);
}

}  // namespace isopool::worker
