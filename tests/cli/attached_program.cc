// SPDX-License-Identifier: BSD-3-Clause
#include "tests/cli/attached_program.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/system_call.h"
#include "base/unix_address.h"
#include "ipc/memory/memory_object.h"

namespace isopool::tests {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

base::Fd connectTo(const std::string& address) {
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto name = base::UnixAddress::ofPath(address).value();
  base::checkSystemCall(::connect(socket.get(), name.get(), name.bytes()), "connect", address);
  return socket;
}

}  // namespace

AttachedProgram::AttachedProgram(const std::string& address, const std::string& name)
    : control_(connectTo(address)) {
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  hello.processId = ::getpid();
  hello.program = name;
  control_.send(hello, {pidfd.get()});
  control_.send(ipc::OpenPool{1, 1});
  EXPECT_TRUE(waitFor([this] { return serving_ != 0; })) << "no worker serves the program";
}

void AttachedProgram::load(const std::string& name, const std::string& bytes) {
  const base::Fd memory(
      static_cast<int>(::memfd_create("package", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  ASSERT_EQ(::write(memory.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ipc::sealMemoryObject(memory, ipc::Seal::kReadOnly);
  held_.reset();
  ipc::LoadPackage message;
  message.package = ++packages_;
  message.bytes = bytes.size();
  message.name = name;
  message.digestLow = 0xabcdef;
  message.digestHigh = 0x123;
  control_.send(message, {memory.get()});
  ASSERT_TRUE(waitFor([this] { return held_.has_value(); }));
  ASSERT_EQ(held_->refusal, "");
}

void AttachedProgram::report(const std::vector<ipc::ModelCalls>& calls, uint32_t waiting) {
  control_.send(ipc::ReportCalls{calls, waiting, /*awaited=*/0});
}

uint64_t AttachedProgram::post(const std::string& text) {
  ipc::OutgoingCall call;
  call.operation = ipc::Operation::kPing;
  call.payload.inlineBytes = std::as_bytes(std::span(text));
  return ends_.at(serving_)->publish(call);
}

std::string AttachedProgram::call(const std::string& text) {
  post(text);
  ipc::ClientEnd& end = *ends_.at(serving_);
  const auto completion = std::make_unique<ipc::ReceivedCompletion>();
  if (!waitFor([&] { return end.completionReady(); })) return {};
  if (end.peek(*completion) != ipc::Received::kOne) return {};
  end.consumed();
  return {reinterpret_cast<const char*>(completion->bytes), completion->payload.inlineBytes};
}

void AttachedProgram::hang() {
  const uint64_t sequence = post("!hang");
  EXPECT_TRUE(waitFor([&] { return ends_.at(serving_)->hasStarted(sequence); }));
}

std::string AttachedProgram::waitForRefusal() {
  expectsRefusal_ = true;
  waitFor([this] { return ended_; });
  return refusal_;
}

bool AttachedProgram::waitFor(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + milliseconds(10000);
  while (!condition()) {
    if (ended_ || Clock::now() >= deadline) return false;
    // Some conditions depend on shared memory, whose changes send no message.
    if (!control_.waitReadable(milliseconds(10))) continue;
    ended_ = control_.receive() == ipc::ReceiveResult::kPeerGone;
    while (std::optional<ipc::Frame> frame = control_.next()) handle(*frame);
  }
  return true;
}

void AttachedProgram::handle(ipc::Frame& frame) {
  switch (frame.type) {
    case ipc::MessageType::kIntroduceWorker:
      return introduce(frame);
    case ipc::MessageType::kAssignWorker:
      serving_ = ipc::decodeMessage<ipc::AssignWorker>(frame).epoch;
      return;
    case ipc::MessageType::kPackageHeld:
      held_ = ipc::decodeMessage<ipc::PackageHeld>(frame);
      if (!frame.descriptors.empty()) control_.send(ipc::ConfirmPackage{held_->package, true});
      return;
    case ipc::MessageType::kFailure:
      refusal_ = ipc::decodeMessage<ipc::Failure>(frame).text;
      if (!expectsRefusal_) ADD_FAILURE() << refusal_;
      return;
    default:
      return;
  }
}

void AttachedProgram::introduce(ipc::Frame& frame) {
  const auto introduction = ipc::decodeMessage<ipc::IntroduceWorker>(frame);
  ipc::Mapping own = ipc::mapShared(frame.descriptors[1], 0, ipc::kClientControlBytes,
                                    ipc::Access::kReadWrite, ipc::Prefault::kNo);
  ipc::Mapping peer = ipc::mapShared(frame.descriptors[2], 0, ipc::kWorkerControlBytes,
                                     ipc::Access::kReadOnly, ipc::Prefault::kNo);
  ends_[introduction.epoch] = std::make_unique<ipc::ClientEnd>(base::Epoch(introduction.epoch),
                                                               std::move(own), std::move(peer));
  ipc::sealMemoryObject(frame.descriptors[1], ipc::Seal::kSingleWriter);
  control_.send(ipc::ChannelMapped{introduction.epoch});
}

}  // namespace isopool::tests
