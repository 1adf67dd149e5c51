// SPDX-License-Identifier: BSD-3-Clause
#include "tests/supervisor/control_client.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "ipc/channel/futex.h"
#include "ipc/memory/memory_object.h"

namespace isopool::tests {

void ControlClient::begin(const std::string& program) {
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  hello.processId = ::getpid();
  hello.program = program;
  send(hello, {pidfd.get()});
  ASSERT_TRUE(waitFor([this] { return welcome_.has_value(); })) << failure_.value_or("no answer");
}

void ControlClient::openPool(uint32_t pool, uint32_t workers) {
  send(ipc::OpenPool{pool, workers});
  ASSERT_TRUE(waitForPool(pool, workers)) << failure_.value_or("no answer");
}

bool ControlClient::waitForPool(uint32_t pool, uint32_t workers) {
  return waitFor([&] {
    for (uint32_t slot = 0; slot < workers; ++slot) {
      const uint64_t epoch = serving(pool, slot);
      if (epoch == 0 || workers_.at(epoch).died) return false;
    }
    return true;
  });
}

uint64_t ControlClient::waitForSpare() {
  uint64_t spare = 0;
  waitFor([&] {
    for (const ipc::WorkerStatistics& each : statistics().workers) {
      const auto found = workers_.find(each.epoch);
      if (!each.spare || found == workers_.end() || !found->second.end) continue;
      if (found->second.end->attached()) spare = each.epoch;
    }
    return spare != 0;
  });
  return spare;
}

bool ControlClient::waitFor(const std::function<bool()>& condition, milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (!condition()) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0 || ended_) return condition();
    // Some conditions depend on shared memory, whose changes send no message.
    receive(std::min(left, milliseconds(20)));
  }
  return true;
}

bool ControlClient::waitForEnd(milliseconds patience) {
  return waitFor([this] { return ended_; }, patience);
}

ipc::Statistics ControlClient::statistics() {
  const uint64_t token = ++lastToken_;
  send(ipc::RequestStatistics{token});
  EXPECT_TRUE(waitFor([&] { return statistics_ && statistics_->token == token; }));
  return statistics_.value_or(ipc::Statistics{});
}

void ControlClient::sendBytes(const std::string& bytes) {
  ASSERT_EQ(::write(control_.fd(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

uint64_t ControlClient::publish(uint64_t epoch, const std::string& text) {
  ipc::OutgoingCall call;
  call.operation = ipc::Operation::kPing;
  call.payload.inlineBytes = std::as_bytes(std::span(text));
  return worker(epoch).end->publish(call);
}

bool ControlClient::begins(uint64_t epoch, const std::string& text) {
  const uint64_t sequence = publish(epoch, text);
  return waitFor([&] { return worker(epoch).end->hasStarted(sequence); });
}

std::optional<std::string> ControlClient::call(uint64_t epoch, const std::string& text,
                                               milliseconds patience) {
  post(epoch, text);
  ipc::ClientEnd& end = *worker(epoch).end;
  if (!waitFor([&] { return end.completionReady(); }, patience)) return std::nullopt;
  const auto completion = std::make_unique<ipc::ReceivedCompletion>();
  if (end.peek(*completion) != ipc::Received::kOne) return std::nullopt;
  end.consumed();
  return std::string(reinterpret_cast<const char*>(completion->bytes),
                     completion->payload.inlineBytes);
}

Clock::time_point ControlClient::killAndReport(uint64_t epoch) {
  const auto killed = Clock::now();
  ::syscall(SYS_pidfd_send_signal, worker(epoch).pidfd.get(), SIGKILL, nullptr, 0);
  send(ipc::ReportDeath{epoch, ""});
  return killed;
}

bool ControlClient::receive(milliseconds patience) {
  if (ended_ || !control_.waitReadable(patience)) return false;
  const bool gone = control_.receive() == ipc::ReceiveResult::kPeerGone;
  while (std::optional<ipc::Frame> frame = control_.next()) handle(*frame);
  ended_ = gone;
  return true;
}

void ControlClient::handle(ipc::Frame& frame) {
  switch (frame.type) {
    case ipc::MessageType::kWelcome:
      welcome_ = ipc::decodeMessage<ipc::Welcome>(frame);
      return;
    case ipc::MessageType::kFailure:
      failure_ = ipc::decodeMessage<ipc::Failure>(frame).text;
      return;
    case ipc::MessageType::kStatistics:
      statistics_ = ipc::decodeMessage<ipc::Statistics>(frame);
      return;
    case ipc::MessageType::kIntroduceWorker:
      return introduce(frame);
    case ipc::MessageType::kAssignWorker: {
      const auto assigned = ipc::decodeMessage<ipc::AssignWorker>(frame);
      EXPECT_EQ(workers_.count(assigned.epoch), 1u) << "assigned before it was introduced";
      EXPECT_TRUE(worker(assigned.epoch).end->attached());
      slots_[{assigned.pool, assigned.slot}] = assigned.epoch;
      assignedAt_[{assigned.pool, assigned.slot}] = Clock::now();
      return;
    }
    case ipc::MessageType::kWorkerDied: {
      const auto died = ipc::decodeMessage<ipc::WorkerDied>(frame);
      ASSERT_EQ(workers_.count(died.epoch), 1u);
      EXPECT_FALSE(worker(died.epoch).died) << "reported twice";
      EXPECT_TRUE(waitUntilDead(worker(died.epoch).introduction.processId, milliseconds(0)));
      worker(died.epoch).died = died;
      ++deaths_;
      return;
    }
    case ipc::MessageType::kSlotQuarantined:
      quarantines_.push_back(ipc::decodeMessage<ipc::SlotQuarantined>(frame));
      return;
    case ipc::MessageType::kGrantOutputSegment: {
      const auto granted = ipc::decodeMessage<ipc::GrantOutputSegment>(frame);
      ASSERT_EQ(frame.descriptors.size(), 1u);
      EXPECT_TRUE(ipc::memoryObjectHas(frame.descriptors[0], granted.bytes, ipc::Seal::kFixedSize));
      worker(granted.epoch).segments.push_back(granted);
      worker(granted.epoch).segmentObjects.push_back(std::move(frame.descriptors[0]));
      return;
    }
    case ipc::MessageType::kInputSegmentReleased:
      releasedInputs_.push_back(ipc::decodeMessage<ipc::InputSegmentReleased>(frame).segment);
      return;
    case ipc::MessageType::kUnmapOutputSegment:
      toUnmap_.push_back(ipc::decodeMessage<ipc::UnmapOutputSegment>(frame));
      return;
    case ipc::MessageType::kDrain:
      drain_ = ipc::decodeMessage<ipc::Drain>(frame);
      return;
    case ipc::MessageType::kPauseCalls:
      paused_ = ipc::decodeMessage<ipc::PauseCalls>(frame).paused;
      return;
    case ipc::MessageType::kCallTimeOver:
      callTimesOver_.push_back(ipc::decodeMessage<ipc::CallTimeOver>(frame));
      return;
    case ipc::MessageType::kChannelClosed:
      closedChannels_.push_back(ipc::decodeMessage<ipc::ChannelClosed>(frame).epoch);
      return;
    case ipc::MessageType::kRetireWorker:
      retired_.push_back(ipc::decodeMessage<ipc::RetireWorker>(frame).epoch);
      return;
    case ipc::MessageType::kPackageHeld: {
      const auto held = ipc::decodeMessage<ipc::PackageHeld>(frame);
      held_[held.package] = held;
      if (!frame.descriptors.empty()) {
        offered_[held.package] = std::move(frame.descriptors.front());
      }
      return;
    }
    default:
      ADD_FAILURE() << "unexpected message " << static_cast<uint32_t>(frame.type);
  }
}

void ControlClient::introduce(ipc::Frame& frame) {
  const auto introduction = ipc::decodeMessage<ipc::IntroduceWorker>(frame);
  ASSERT_EQ(frame.descriptors.size(), 6u);
  Worker& made = workers_[introduction.epoch];
  made.introduction = introduction;
  made.pidfd = std::move(frame.descriptors[0]);
  made.clientControl = std::move(frame.descriptors[1]);
  made.crashLog = std::move(frame.descriptors[4]);
  EXPECT_TRUE(
      ipc::memoryObjectHas(frame.descriptors[3], introduction.outputBytes, ipc::Seal::kFixedSize));
  ipc::Mapping own = ipc::mapShared(made.clientControl, 0, ipc::kClientControlBytes,
                                    ipc::Access::kReadWrite, ipc::Prefault::kNo);
  ipc::Mapping peer = ipc::mapShared(frame.descriptors[2], 0, ipc::kWorkerControlBytes,
                                     ipc::Access::kReadOnly, ipc::Prefault::kNo);
  made.end = std::make_unique<ipc::ClientEnd>(base::Epoch(introduction.epoch), std::move(own),
                                              std::move(peer));
  if (!answersIntroductions) return;
  ipc::sealMemoryObject(made.clientControl, ipc::Seal::kSingleWriter);
  send(ipc::ChannelMapped{introduction.epoch});
}

}  // namespace isopool::tests
