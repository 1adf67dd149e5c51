// SPDX-License-Identifier: BSD-3-Clause
// What becomes of an answer whose worker is gone. The test plays the worker, in memory of its own.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "client/channel.h"
#include "client/request_draft.h"
#include "client/worker_memory.h"
#include "ipc/channel/layout.h"
#include "ipc/memory/memory_object.h"
#include "ipc/tensor/value_codec.h"
#include "isopool/errors.h"

namespace isopool::tests {

namespace {

constexpr ipc::Epoch kEpoch(7);

ipc::Mapping shared(const ipc::Fd& object, size_t bytes) {
  return ipc::mapShared(object, 0, bytes, ipc::Access::kReadWrite, ipc::Prefault::kNo);
}

/// A channel whose worker has answered the first call with a tensor in a segment of which this
/// program has not heard.
class AnswerInUnknownSegment : public ::testing::Test {
 protected:
  AnswerInUnknownSegment() {
    // Without it the channel would kill the worker's process, which is this one.
    channel_->share({[](const std::string&) {}, [](uint64_t) {}, 0}, nullptr);
    ipc::PayloadWriter writer;
    writer.packer().pack_array(2);
    writer.addValue(at::ones({1000}));
    writer.packer().pack_array(0);
    ipc::StorageRecord record;
    record.kind = ipc::StorageKind::kLent;
    record.segment = 2;
    record.bytes = 4000;
    record.generation = 1;
    const std::span<const std::byte> payload = writer.finish({&record, 1});
    auto& control = *reinterpret_cast<ipc::WorkerControl*>(worker_.data());
    ipc::CompletionSlot& slot = control.slots[0];
    slot.sequence = 1;
    slot.epoch = kEpoch.value;
    slot.status = static_cast<uint32_t>(ipc::CompletionStatus::kValue);
    slot.payload.inlineBytes = static_cast<uint32_t>(payload.size());
    std::memcpy(slot.bytes.data(), payload.data(), payload.size());
    control.startedSequence = 1;
    control.completionTail = 1;
  }

  client::Answer exchange() {
    client::RequestDraft& draft = client::requestDraft();
    draft.writer.packer().pack_array(0);
    return channel_->exchange(ipc::Operation::kPing, draft, std::nullopt);
  }

  const ipc::Fd clientObject_ = ipc::createMemoryObject("client", ipc::kClientControlBytes);
  const ipc::Fd workerObject_ = ipc::createMemoryObject("worker", ipc::kWorkerControlBytes);
  const ipc::Mapping worker_ = shared(workerObject_, ipc::kWorkerControlBytes);
  const std::shared_ptr<client::WorkerMemory> memory_ = std::make_shared<client::WorkerMemory>(
      kEpoch, shared(clientObject_, ipc::kClientControlBytes),
      shared(workerObject_, ipc::kWorkerControlBytes), ipc::Mapping());
  const std::shared_ptr<client::Channel> channel_ =
      std::make_shared<client::Channel>(memory_, ::getpid(), ipc::Fd(), ipc::Fd(),
                                        /*lifeWordWorks=*/true, /*connection=*/1);
};

}  // namespace

TEST_F(AnswerInUnknownSegment, IsLostWithAWorkerThatIsGone) {
  client::Answer answer = exchange();
  ASSERT_EQ(answer.fate(), client::Fate::kAnswered);
  channel_->reaped(SIGKILL, 0);
  try {
    answer.take();
    FAIL() << "it can't be had";
  } catch (const WorkerLost& lost) {
    EXPECT_TRUE(lost.started());
    EXPECT_EQ(lost.signal(), SIGKILL);
  }
}

TEST_F(AnswerInUnknownSegment, IsALieOfAWorkerThatLives) {
  client::Answer answer = exchange();
  ASSERT_EQ(answer.fate(), client::Fate::kAnswered);
  memory_->expectNoMoreSegments();  // or it would be waited for
  try {
    answer.take();
    FAIL() << "it can't be had";
  } catch (const WorkerLost& lost) {
    FAIL() << lost.what();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nonsense"), std::string::npos) << error.what();
  }
}

}  // namespace isopool::tests
