// SPDX-License-Identifier: BSD-3-Clause
// What happens to an answer and to the ring slot that it occupies. The test plays the worker.
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

/// The worker has answered the first call with a tensor in a segment that this program does not
/// know.
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

/// The outcome of an answer that refers to stored bytes of a package at `offset`.
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

TEST_F(AnswerInUnknownSegment, IsLostIfTheWorkerIsDead) {
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

TEST_F(AnswerInUnknownSegment, IsRefusedIfTheWorkerLives) {
  client::Answer answer = worker_.call();
  ASSERT_EQ(answer.outcome(), client::RequestOutcome::kAnswered);
  worker_.memory().expectNoMoreSegments();  // otherwise take() waits for the segment
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

// Otherwise there is a deadlock: a thread that handles the exception may wait for a lock whose
// owner waits for the slot.
TEST(Answer, ReleasesItsSlotWhenItIsTaken) {
  PlayedWorker worker;
  worker.refuse(1, ipc::RefusalKind::kObjectUnloaded);
  client::Answer refused = worker.call();
  EXPECT_THROW(refused.take(), client::ObjectUnloaded);
  worker.answerNothing(2);
  client::Answer answer = worker.call();
  EXPECT_TRUE(answer.take().isNone());
  // The last two of these calls use the ring slots of the first two.
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

// Otherwise the ring could hold more answers than it has slots: those of a full ring, and that of a
// call that reuses the first one's slot. The client would then take the worker for a broken one.
TEST(Answer, IsConsumedBeforeItsThreadContinues) {
  PlayedWorker worker;
  const OnOneProcessor here(usableProcessors().front());
  // The leader waits on behalf of all threads. It runs on the same processor with the lowest
  // priority, so a thread that it wakes runs before it.
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
