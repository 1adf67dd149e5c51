// SPDX-License-Identifier: BSD-3-Clause
// What becomes of an answer, and of the slot of the channel that it holds. The test plays the
// worker.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "client/models/archive_file.h"
#include "isopool/errors.h"
#include "testing/one_processor.h"
#include "tests/client/harness.h"
#include "tests/client/played_worker.h"

namespace isopool::tests {

namespace {

/// The worker has answered the first call with a tensor in a segment of which this program has not
/// heard.
class AnswerInUnknownSegment : public ::testing::Test {
 protected:
  AnswerInUnknownSegment() {
    ipc::PayloadWriter writer;
    writer.packer().pack_array(2);
    writer.addValue(at::ones({1000}));
    writer.packer().pack_array(0);
    ipc::StorageRecord record;
    record.kind = ipc::StorageKind::kLent;
    record.segment = 2;
    record.bytes = 4000;
    record.generation = 1;
    worker_.answer(1, ipc::CompletionStatus::kValue, writer.finish({&record, 1}));
  }

  PlayedWorker worker_;
};

/// How a worker's answer is taken that names stored bytes of a package at `offset`.
std::string outcomeOfStoredResultAt(uint64_t offset) {
  const std::vector<char> bytes(4096);
  const auto file = client::ArchiveFile::copyOf("stored", bytes.data(), bytes.size());
  ipc::PayloadWriter writer;
  writer.packer().pack_array(2);
  writer.addValue(at::ones({8}));
  writer.packer().pack_array(0);
  ipc::StorageRecord record;
  record.kind = ipc::StorageKind::kPackage;
  record.segment = file->id().value;
  record.offset = offset;
  record.bytes = 32;
  PlayedWorker worker;
  worker.answer(1, ipc::CompletionStatus::kValue, writer.finish({&record, 1}));
  client::Answer answer = worker.call();
  try {
    answer.take();
    return "taken";
  } catch (const Error& error) {
    return error.what();
  }
}

bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  const size_t name = line.rfind(')');
  return name != std::string::npos && line[name + 2] == 'S';
}

}  // namespace

TEST(Answer, WithStoredBytesAtAnOddOffsetIsRefused) {
  EXPECT_EQ(outcomeOfStoredResultAt(64), "taken");
  for (const uint64_t offset : {1, 65, 4090}) {
    EXPECT_NE(outcomeOfStoredResultAt(offset).find("an invalid answer"), std::string::npos);
  }
}

TEST_F(AnswerInUnknownSegment, IsLostWithAWorkerThatIsGone) {
  client::Answer answer = worker_.call();
  ASSERT_EQ(answer.outcome(), client::RequestOutcome::kAnswered);
  worker_.channel().reaped(SIGKILL, 0);
  try {
    answer.take();
    FAIL() << "it can't be had";
  } catch (const WorkerLost& lost) {
    EXPECT_TRUE(lost.started());
    EXPECT_EQ(lost.signal(), SIGKILL);
  }
}

TEST_F(AnswerInUnknownSegment, IsALieOfAWorkerThatLives) {
  client::Answer answer = worker_.call();
  ASSERT_EQ(answer.outcome(), client::RequestOutcome::kAnswered);
  worker_.memory().expectNoMoreSegments();  // or it would be waited for
  try {
    answer.take();
    FAIL() << "it can't be had";
  } catch (const WorkerLost& lost) {
    FAIL() << lost.what();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("an invalid answer"), std::string::npos)
        << error.what();
  }
}

// Or a thread that handles what was thrown, and waits for a lock, holds up the lock's owner, who
// waits for the slot.
TEST(Answer, ThatWasTakenHoldsNoSlotAnyMore) {
  PlayedWorker worker;
  worker.refuse(1, ipc::RefusalKind::kObjectUnloaded);
  client::Answer refused = worker.call();
  EXPECT_THROW(refused.take(), client::ObjectUnloaded);
  worker.answerNothing(2);
  client::Answer answer = worker.call();
  EXPECT_TRUE(answer.take().isNone());
  // The last of them lies where those two did.
  for (uint64_t sequence = 3; sequence <= 2 + ipc::kRingSlots; ++sequence) {
    worker.answerNothing(sequence);
    client::RequestDraft& draft = client::requestDraft();
    draft.writer.packer().pack_array(0);
    client::Answer next = worker.channel().exchange(ipc::Operation::kPing, draft,
                                                    client::Clock::now() + std::chrono::seconds(1));
    ASSERT_EQ(next.outcome(), client::RequestOutcome::kAnswered) << "call " << sequence;
    EXPECT_TRUE(next.take().isNone());
  }
}

// Or as many calls as there are slots, all answered, and one that takes the first one's place,
// would be more answers than the ring has slots: the worker would be taken for a liar.
TEST(Answer, IsConsumedBeforeItsThreadGoesOn) {
  PlayedWorker worker;
  const OnOneProcessor here(usableProcessors().front());
  // It waits for all others, on the same processor, and yields it to whomever it wakes.
  std::thread leader([&] {
    const sched_param none{};
    EXPECT_EQ(::sched_setscheduler(0, SCHED_IDLE, &none), 0);
    EXPECT_TRUE(worker.call().take().isNone());
  });
  EXPECT_TRUE(waitUntil([&] { return worker.callsPublished() == 1; }));
  std::atomic<pid_t> followersId{0};
  uint32_t consumed = 0;
  std::thread follower([&] {
    followersId = static_cast<pid_t>(::syscall(SYS_gettid));
    client::Answer answer = worker.call();
    consumed = worker.answersConsumed();
    EXPECT_TRUE(answer.take().isNone());
  });
  EXPECT_TRUE(waitUntil([&] { return worker.callsPublished() == 2 && sleeps(followersId); }));
  worker.answerNothing(2);
  follower.join();
  EXPECT_EQ(consumed, 1u);
  worker.answerNothing(1);
  leader.join();
}

}  // namespace isopool::tests
