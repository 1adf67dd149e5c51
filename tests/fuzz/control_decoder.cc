// SPDX-License-Identifier: BSD-3-Clause
// The control plane's decoder: any bytes, in any portions, with any number of descriptors. The
// first byte of the input selects the size of the portions, the second the number of descriptors
// with each.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/system_call.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"
#include "ipc/control/guardian_messages.h"
#include "ipc/control/operator_messages.h"
#include "ipc/control/worker_messages.h"
#include "ipc/control/zygote_messages.h"
#include "tests/fuzz/fuzz_target.h"

namespace isopool::fuzz {
namespace {

using ipc::MessageType;

template <typename Message>
void decode(const ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<Message>(frame);
  // The decoded message encodes to a message that decodes to the same: every field has one meaning.
  msgpack::sbuffer first;
  msgpack::pack(first, message);
  if (first.size() > ipc::kMaxBodyBytes) return;
  ipc::Frame again;
  again.type = Message::kType;
  again.body.assign(first.data(), first.data() + first.size());
  msgpack::sbuffer second;
  msgpack::pack(second, ipc::decodeMessage<Message>(again));
  require(second.size() == first.size() &&
              std::equal(first.data(), first.data() + first.size(), second.data()),
          "a message that was decoded and encoded decodes to itself");
}

// No default: the compiler warns about a new type of message without a case here.
void decodeAny(const ipc::Frame& frame) {
  switch (frame.type) {
    case MessageType::kHello:
      return decode<ipc::Hello>(frame);
    case MessageType::kOpenPool:
      return decode<ipc::OpenPool>(frame);
    case MessageType::kClosePool:
      return decode<ipc::ClosePool>(frame);
    case MessageType::kDeclareInputSegment:
      return decode<ipc::DeclareInputSegment>(frame);
    case MessageType::kRetireInputSegment:
      return decode<ipc::RetireInputSegment>(frame);
    case MessageType::kOutputSegmentUnmapped:
      return decode<ipc::OutputSegmentUnmapped>(frame);
    case MessageType::kTrimMemory:
      return decode<ipc::TrimMemory>(frame);
    case MessageType::kLoadPackage:
      return decode<ipc::LoadPackage>(frame);
    case MessageType::kUnloadPackage:
      return decode<ipc::UnloadPackage>(frame);
    case MessageType::kChannelMapped:
      return decode<ipc::ChannelMapped>(frame);
    case MessageType::kReportDeath:
      return decode<ipc::ReportDeath>(frame);
    case MessageType::kRequestStatistics:
      return decode<ipc::RequestStatistics>(frame);
    case MessageType::kConfirmPackage:
      return decode<ipc::ConfirmPackage>(frame);
    case MessageType::kReportOverdue:
      return decode<ipc::ReportOverdue>(frame);
    case MessageType::kWorkerReleased:
      return decode<ipc::WorkerReleased>(frame);
    case MessageType::kAcknowledgeDrain:
      return decode<ipc::AcknowledgeDrain>(frame);
    case MessageType::kRequestReport:
      return decode<ipc::RequestReport>(frame);
    case MessageType::kReportCalls:
      return decode<ipc::ReportCalls>(frame);
    case MessageType::kRequestSettings:
      return decode<ipc::RequestSettings>(frame);
    case MessageType::kRequestAction:
      return decode<ipc::RequestAction>(frame);
    case MessageType::kWelcome:
      return decode<ipc::Welcome>(frame);
    case MessageType::kIntroduceWorker:
      return decode<ipc::IntroduceWorker>(frame);
    case MessageType::kAssignWorker:
      return decode<ipc::AssignWorker>(frame);
    case MessageType::kWorkerDied:
      return decode<ipc::WorkerDied>(frame);
    case MessageType::kSlotQuarantined:
      return decode<ipc::SlotQuarantined>(frame);
    case MessageType::kGrantOutputSegment:
      return decode<ipc::GrantOutputSegment>(frame);
    case MessageType::kInputSegmentReleased:
      return decode<ipc::InputSegmentReleased>(frame);
    case MessageType::kUnmapOutputSegment:
      return decode<ipc::UnmapOutputSegment>(frame);
    case MessageType::kFailure:
      return decode<ipc::Failure>(frame);
    case MessageType::kStatistics:
      return decode<ipc::Statistics>(frame);
    case MessageType::kPackageHeld:
      return decode<ipc::PackageHeld>(frame);
    case MessageType::kRetireWorker:
      return decode<ipc::RetireWorker>(frame);
    case MessageType::kChannelClosed:
      return decode<ipc::ChannelClosed>(frame);
    case MessageType::kDrain:
      return decode<ipc::Drain>(frame);
    case MessageType::kCallTimeOver:
      return decode<ipc::CallTimeOver>(frame);
    case MessageType::kReport:
      return decode<ipc::Report>(frame);
    case MessageType::kSettingsInForce:
      return decode<ipc::SettingsInForce>(frame);
    case MessageType::kActionDone:
      return decode<ipc::ActionDone>(frame);
    case MessageType::kPauseCalls:
      return decode<ipc::PauseCalls>(frame);
    case MessageType::kStartSuccessor:
      return decode<ipc::StartSuccessor>(frame);
    case MessageType::kServes:
      return decode<ipc::Serves>(frame);
    case MessageType::kSuccessorServes:
      return decode<ipc::SuccessorServes>(frame);
    case MessageType::kSuccessorEnded:
      return decode<ipc::SuccessorEnded>(frame);
    case MessageType::kForkWorker:
      return decode<ipc::ForkWorker>(frame);
    case MessageType::kZygoteReady:
      return decode<ipc::ZygoteReady>(frame);
    case MessageType::kZygoteFailed:
      return decode<ipc::ZygoteFailed>(frame);
    case MessageType::kWorkerForked:
      return decode<ipc::WorkerForked>(frame);
    case MessageType::kForkFailed:
      return decode<ipc::ForkFailed>(frame);
    case MessageType::kAttachChannel:
      return decode<ipc::AttachChannel>(frame);
    case MessageType::kSetTitle:
      return decode<ipc::SetTitle>(frame);
    case MessageType::kDetachChannel:
      return decode<ipc::DetachChannel>(frame);
    case MessageType::kMapInputSegment:
      return decode<ipc::MapInputSegment>(frame);
    case MessageType::kUnmapInputSegment:
      return decode<ipc::UnmapInputSegment>(frame);
    case MessageType::kTrimOutput:
      return decode<ipc::TrimOutput>(frame);
    case MessageType::kMapPackage:
      return decode<ipc::MapPackage>(frame);
    case MessageType::kUnmapPackage:
      return decode<ipc::UnmapPackage>(frame);
    case MessageType::kAddOutputSegment:
      return decode<ipc::AddOutputSegment>(frame);
    case MessageType::kRefuseOutputSegment:
      return decode<ipc::RefuseOutputSegment>(frame);
    case MessageType::kRefuseInputSegment:
      return decode<ipc::RefuseInputSegment>(frame);
    case MessageType::kWorkerReady:
      return decode<ipc::WorkerReady>(frame);
    case MessageType::kChannelAttached:
      return decode<ipc::ChannelAttached>(frame);
    case MessageType::kRequestOutputSegment:
      return decode<ipc::RequestOutputSegment>(frame);
    case MessageType::kInputSegmentUnmapped:
      return decode<ipc::InputSegmentUnmapped>(frame);
    case MessageType::kRetireOutputSegment:
      return decode<ipc::RetireOutputSegment>(frame);
    case MessageType::kChannelDetached:
      return decode<ipc::ChannelDetached>(frame);
    case MessageType::kCodeLeft:
      return decode<ipc::CodeLeft>(frame);
    case MessageType::kForbiddenAct:
      return decode<ipc::ForbiddenAct>(frame);
  }
  throw ipc::ProtocolError("a message of an unknown type");
}

constexpr size_t kMostDescriptors = 20;  // more than a frame may have

const base::Fd& passedDescriptor() {
  static const base::Fd passed(
      base::checkSystemCall(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open", "/dev/null"));
  return passed;
}

/// Sends a part with `descriptors` copies of one descriptor. False if the socket accepts no more.
bool send(int socket, const uint8_t* data, size_t size, size_t descriptors) {
  iovec part{const_cast<uint8_t*>(data), size};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptors > 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    const std::vector<int> copies(descriptors, passedDescriptor().get());
    std::memcpy(CMSG_DATA(rights), copies.data(), descriptors * sizeof(int));
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
}

int lowestFreeDescriptor() {
  passedDescriptor();
  return base::Fd(base::checkSystemCall(::dup(STDERR_FILENO), "dup")).get();
}

void receiveAll(ipc::ControlSocket& receiver) {
  while (receiver.receive() == ipc::ReceiveResult::kOk) {
    while (const auto frame = receiver.next()) {
      require(frame->body.size() <= ipc::kMaxBodyBytes, "a frame's body is of limited size");
      require(frame->descriptors.size() <= ipc::kMaxFrameDescriptors,
              "a frame has a limited number of descriptors");
      for (const base::Fd& descriptor : frame->descriptors) {
        require(descriptor.valid(), "a frame has the descriptors that it declares");
      }
      try {
        decodeAny(*frame);
      } catch (const ipc::ProtocolError&) {
        // A real receiver would close the connection; this loop continues with the next frame.
      }
    }
  }
}

void converse(const uint8_t* data, size_t size) {
  InputReader head(data, std::min<size_t>(size, 2));
  const auto cut = head.take<uint8_t>();
  const auto descriptors = head.take<uint8_t>();
  const uint8_t* const end = data + size;
  data += std::min<size_t>(size, 2);
  auto [sender, receiverEnd] = ipc::ControlSocket::makePair();
  ipc::ControlSocket receiver(std::move(receiverEnd));
  const size_t portion = cut == 0 ? size : cut;
  // The low half is for the first part, the high half for each further part.
  size_t attached = (descriptors & 0x0f) == 0x0f ? kMostDescriptors : descriptors & 0x0f;
  while (data < end) {
    const size_t count = std::min<size_t>(portion, static_cast<size_t>(end - data));
    if (!send(sender.get(), data, count, attached)) break;
    data += count;
    attached = descriptors >> 4;
    receiveAll(receiver);
  }
}

}  // namespace
}  // namespace isopool::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int before = isopool::fuzz::lowestFreeDescriptor();
  try {
    isopool::fuzz::converse(data, size);
  } catch (const isopool::ipc::ProtocolError&) {
    // The expected answer to invalid bytes.
  }
  isopool::fuzz::require(isopool::fuzz::lowestFreeDescriptor() == before,
                         "no descriptor outlives its connection");
  return 0;
}
