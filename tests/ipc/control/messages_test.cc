// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>

#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"
#include "ipc/control/operator_messages.h"
#include "ipc/control/worker_messages.h"
#include "ipc/control/zygote_messages.h"

namespace isopool::ipc {
namespace {

template <typename Message>
std::string packed(const Message& message) {
  msgpack::sbuffer buffer;
  msgpack::pack(buffer, message);
  return {buffer.data(), buffer.size()};
}

/// Sends the message through a socket pair, and compares the received one with it byte by byte.
template <typename Message>
Message crossed(const Message& message) {
  auto [sender, receiver] = ControlSocket::makePair();
  ControlSocket from(std::move(sender));
  ControlSocket to(std::move(receiver));
  EXPECT_EQ(from.send(message), SendResult::kSent);
  // A long message is read in several pieces.
  std::optional<Frame> frame;
  while (!frame && to.receive() == ReceiveResult::kOk) frame = to.next();
  if (!frame) throw std::runtime_error("nothing arrived");
  EXPECT_EQ(frame->type, Message::kType);
  const Message arrived = decodeMessage<Message>(*frame);
  EXPECT_EQ(packed(arrived), packed(message));
  return arrived;
}

constexpr uint64_t kLarge = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kLarge32 = std::numeric_limits<uint32_t>::max();

TEST(Messages, CrossWithEveryFieldAtItsLimit) {
  crossed(Hello{kLarge32, kLarge32, INT32_MIN, kLarge32, kLarge32, "a program"});
  crossed(OpenPool{kLarge32, kLarge32});
  crossed(DeclareInputSegment{kLarge32, kLarge});
  crossed(ReportDeath{kLarge, std::string("\0\xff\n", 3)});
  crossed(IntroduceWorker{kLarge, INT32_MAX, kLarge, true});
  crossed(WorkerDied{kLarge, 64, INT32_MIN});
  crossed(SlotQuarantined{kLarge32, 1, 2, 3, "text"});
  crossed(CallTimeOver{kLarge, kLarge, "text"});
  crossed(GrantOutputSegment{kLarge, kLarge32, kLarge});
  crossed(ForkWorker{kLarge, kLarge, "GPU-8e2f", true});
  crossed(AttachChannel{kLarge, kLarge, kLarge, kLarge32, kLarge32, kLarge});
  crossed(MapPackage{kLarge, kLarge32, kLarge, std::string(100'000, 'n')});
  crossed(RefuseOutputSegment{kLarge, "the limit", true, true, 7});
  crossed(RetireInputSegment{kLarge32});
  crossed(InputSegmentReleased{kLarge32});
  crossed(UnmapOutputSegment{kLarge, kLarge32});
  crossed(OutputSegmentUnmapped{kLarge, kLarge32});
  crossed(UnmapInputSegment{kLarge, kLarge32});
  crossed(InputSegmentUnmapped{kLarge, kLarge32});
  crossed(RetireOutputSegment{kLarge, kLarge32});
  crossed(TrimMemory{});
  crossed(TrimOutput{kLarge});
  crossed(RequestOutputSegment{kLarge, kLarge});
  crossed(ConfirmPackage{kLarge32, true});
  crossed(ReportOverdue{kLarge, kLarge});
  crossed(ReportCalls{{{"a model", kLarge, kLarge, {0, kLarge}, kLarge}}, kLarge32, kLarge32});
  crossed(PackageHeld{kLarge32, "limits.models"});
  crossed(RefuseInputSegment{kLarge, kLarge32, "limits.memory"});
  crossed(ForbiddenAct{"system call ptrace", kLarge});
  crossed(CodeLeft{kLarge, true});
}

TEST(Messages, OfAMachineFullOfWorkersCross) {
  Statistics statistics{1, 2, 3, 4, 5, {}};
  for (uint32_t slot = 0; slot < 1024; ++slot) {
    statistics.workers.push_back({slot, 100, 1, slot, slot % 2 == 0, kLarge, kLarge});
  }
  const Statistics arrived = crossed(statistics);
  ASSERT_EQ(arrived.workers.size(), 1024u);
  EXPECT_EQ(arrived.workers.back().slot, 1023u);
}

TEST(Messages, OfASharedSupervisorFullOfClientsCross) {
  Report report;
  for (uint32_t i = 0; i < 256; ++i) {
    ReportedWorker worker;
    worker.forbiddenActs = {{"system call ptrace", i}};
    report.workers.push_back(worker);
    ReportedClient client;
    client.program = std::string(64, 'p');
    client.number = i;
    for (int copies = 0; copies < 4; ++copies) report.clients.push_back(client);
    report.models.push_back({std::string(200, 'm'), kLarge, std::string(32, 'd'), {1, 2, 3}});
  }
  const Report arrived = crossed(report);
  ASSERT_EQ(arrived.clients.size(), 1024u);
  EXPECT_EQ(arrived.clients.back().number, 255u);
  EXPECT_EQ(arrived.workers.back().forbiddenActs.front().count, 255u);
}

TEST(Messages, OfAnotherVersionShowTheirVersion) {
  // A newer Hello has more fields; its version must be readable nevertheless.
  msgpack::sbuffer buffer;
  msgpack::packer<msgpack::sbuffer> packer(buffer);
  packer.pack_array(7).pack(kProtocolVersion + 1).pack(1).pack(2).pack(3).pack(0).pack("program");
  packer.pack("what this version lacks");
  Frame frame;
  frame.type = MessageType::kHello;
  frame.body.assign(buffer.data(), buffer.data() + buffer.size());
  EXPECT_EQ(decodeMessage<Hello>(frame).protocolVersion, kProtocolVersion + 1);
}

}  // namespace
}  // namespace isopool::ipc
