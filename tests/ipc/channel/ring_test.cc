// SPDX-License-Identifier: BSD-3-Clause
// ClientEnd and WorkerEnd together: calls in one direction, completions in the other.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/channel/liveness_word.h"
#include "ipc/channel/spin.h"
#include "testing/one_processor.h"
#include "tests/ipc/channel/peers.h"

namespace isopool::ipc {
namespace {

using tests::Awaited;
using tests::callWith;
using tests::ChannelMemory;
using tests::contentOf;
using tests::isContentOf;
using tests::OnOneProcessor;
using tests::payloadWith;
using tests::Peer;
using tests::PeerKind;
using tests::usableProcessors;

constexpr base::Epoch kEpoch(42);

/// Both ends in one thread: the test controls every step.
class RingTest : public testing::Test {
 protected:
  uint64_t publish(uint64_t number) { return client_.publish(callWith(contentOf(number))); }
  /// Everything that the worker does for one call.
  void runOne() {
    ASSERT_EQ(worker_.peek(call_), Received::kOne);
    worker_.taken();
    ASSERT_EQ(worker_.start(call_.sequence), Start::kRun);
    worker_.complete(call_.sequence, CompletionStatus::kValue, {});
  }

  ChannelMemory memory_{ChannelMemory::Views::kSealed};
  ClientEnd client_{kEpoch, memory_.clientOwn(), memory_.clientPeer()};
  WorkerEnd worker_{kEpoch, memory_.workerOwn(), memory_.workerPeer()};
  ReceivedCall call_;
  ReceivedCompletion completion_;
};

TEST_F(RingTest, BothEndsKnowEachOther) {
  EXPECT_TRUE(client_.headerValid());
  EXPECT_TRUE(worker_.headerValid());
  EXPECT_FALSE(client_.attached());
}

TEST_F(RingTest, NothingPublishedIsNothingReceived) {
  EXPECT_FALSE(worker_.callReady());
  EXPECT_EQ(worker_.peek(call_), Received::kNothing);
  EXPECT_FALSE(client_.completionReady());
  EXPECT_EQ(client_.peek(completion_), Received::kNothing);
}

TEST_F(RingTest, ACallArrivesWithAllItWasGiven) {
  const std::vector<std::byte> content = contentOf(1);
  OutgoingCall call = callWith(content);
  call.operation = Operation::kGlobal;
  call.flags = kGradEnabled | kInferenceMode;
  const uint64_t sequence = client_.publish(call);
  EXPECT_EQ(sequence, 1u);
  ASSERT_EQ(worker_.peek(call_), Received::kOne);
  EXPECT_EQ(call_.sequence, sequence);
  EXPECT_EQ(call_.operation, static_cast<uint32_t>(Operation::kGlobal));
  EXPECT_EQ(call_.flags, kGradEnabled | kInferenceMode);
  EXPECT_EQ(call_.payload.blobBytes, 0u);
  EXPECT_TRUE(isContentOf(1, call_.bytes, call_.payload.inlineBytes));
}

TEST_F(RingTest, ABlobArrivesAsAPlace) {
  OutgoingCall call;
  call.payload.blobSegment = base::SegmentId(7);
  call.payload.blobOffset = uint64_t{1} << 40;
  call.payload.blobBytes = uint64_t{1} << 41;
  client_.publish(call);
  ASSERT_EQ(worker_.peek(call_), Received::kOne);
  EXPECT_EQ(call_.payload.inlineBytes, 0u);
  EXPECT_EQ(call_.payload.blobSegment, 7u);
  EXPECT_EQ(call_.payload.blobOffset, uint64_t{1} << 40);
  EXPECT_EQ(call_.payload.blobBytes, uint64_t{1} << 41);
}

TEST_F(RingTest, ASlotHoldsFromNothingToItsWholeLength) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{kInlineBytes}}) {
    const std::vector<std::byte> content(bytes, std::byte{0x5a});
    client_.publish(callWith(content));
    ASSERT_EQ(worker_.peek(call_), Received::kOne);
    worker_.taken();
    worker_.complete(call_.sequence, CompletionStatus::kPythonError, payloadWith(content));
    ASSERT_EQ(client_.peek(completion_), Received::kOne);
    client_.consumed();
    EXPECT_EQ(completion_.status, static_cast<uint32_t>(CompletionStatus::kPythonError));
    ASSERT_EQ(completion_.payload.inlineBytes, bytes);
    EXPECT_TRUE(std::equal(content.begin(), content.end(), completion_.bytes));
  }
}

TEST_F(RingTest, LookingTwiceTakesNothing) {
  publish(1);
  publish(2);
  ASSERT_EQ(worker_.peek(call_), Received::kOne);
  ASSERT_EQ(worker_.peek(call_), Received::kOne);
  EXPECT_EQ(call_.sequence, 1u);
  worker_.taken();
  ASSERT_EQ(worker_.peek(call_), Received::kOne);
  EXPECT_EQ(call_.sequence, 2u);
}

TEST_F(RingTest, AFullRingSaysSoAndGoesOnWhenTheWorkerTakesACall) {
  for (uint32_t i = 0; i < kRingSlots; ++i) {
    ASSERT_TRUE(client_.canPublish()) << i;
    publish(i);
  }
  EXPECT_FALSE(client_.canPublish());
  ASSERT_EQ(worker_.peek(call_), Received::kOne);
  EXPECT_FALSE(client_.canPublish()) << "the worker still reads that slot";
  worker_.taken();
  EXPECT_TRUE(client_.canPublish());
  publish(kRingSlots);
  EXPECT_FALSE(client_.canPublish());
  for (uint32_t i = 1; i <= kRingSlots; ++i) {
    ASSERT_EQ(worker_.peek(call_), Received::kOne);
    EXPECT_EQ(call_.sequence, i + 1);
    EXPECT_TRUE(isContentOf(i, call_.bytes, call_.payload.inlineBytes)) << i;
    worker_.taken();
  }
  EXPECT_EQ(worker_.peek(call_), Received::kNothing);
}

TEST_F(RingTest, AsManyAnswersAsSlotsMayLieUnread) {
  for (uint32_t i = 0; i < kRingSlots; ++i) {
    publish(i);
    runOne();
  }
  EXPECT_EQ(worker_.completionsPublished(), kRingSlots);
  EXPECT_EQ(worker_.completionsConsumed(), 0u);
  for (uint32_t i = 1; i <= kRingSlots; ++i) {
    ASSERT_EQ(client_.peek(completion_), Received::kOne);
    EXPECT_EQ(completion_.sequence, i);
    client_.consumed();
    EXPECT_EQ(worker_.completionsConsumed(), i);
  }
  EXPECT_EQ(client_.peek(completion_), Received::kNothing);
}

TEST_F(RingTest, APreparationIsAnsweredAndNotCounted) {
  const uint64_t sequence = publish(1);
  ASSERT_EQ(worker_.peek(call_), Received::kOne);
  worker_.taken();
  worker_.complete(sequence, CompletionStatus::kValue, {}, Work::kUncounted);
  EXPECT_TRUE(client_.completionReady());
  EXPECT_EQ(client_.peer().completedCalls.load(), 0u);
}

TEST_F(RingTest, ACallRecalledBeforeItsStartNeverRuns) {
  const uint64_t first = publish(1);
  const uint64_t second = publish(2);
  EXPECT_TRUE(client_.recall(second));
  EXPECT_EQ(worker_.start(first), Start::kRun) << "only the second was recalled";
  EXPECT_EQ(worker_.start(second), Start::kRecalled);
}

TEST_F(RingTest, ACallThatHasStartedIsNotRecalled) {
  const uint64_t sequence = publish(1);
  EXPECT_FALSE(client_.hasStarted(sequence));
  EXPECT_EQ(worker_.start(sequence), Start::kRun);
  EXPECT_TRUE(client_.hasStarted(sequence));
  EXPECT_FALSE(client_.recall(sequence));
}

TEST_F(RingTest, ARecallDoesNotTouchALaterCallInTheSamePlace) {
  ASSERT_TRUE(client_.recall(publish(1)));
  ASSERT_EQ(worker_.peek(call_), Received::kOne);
  worker_.taken();
  ASSERT_EQ(worker_.start(1), Start::kRecalled);
  for (uint32_t i = 1; i < kRingSlots; ++i) {
    publish(i);
    runOne();
  }
  const uint64_t sameplace = publish(kRingSlots);
  ASSERT_EQ(sameplace % kRingSlots, 1 % kRingSlots);
  EXPECT_EQ(worker_.start(sameplace), Start::kRun);
}

TEST_F(RingTest, AWorkerSpinsOnlyAsLongAsItsClientAllows) {
  client_.allowSpin(20, currentProcessor() + 1);
  // If the thread has moved to the other processor in between, the allowance is 0, which is
  // also correct.
  const int64_t allowance = worker_.spinAllowance();
  EXPECT_TRUE(allowance == 20'000 || allowance == 0) << allowance;
  client_.allowSpin(UINT32_MAX, UINT32_MAX);
  EXPECT_EQ(worker_.spinAllowance(), kLongestSpin);
  client_.allowSpin(0, UINT32_MAX);
  EXPECT_EQ(worker_.spinAllowance(), 0);
}

TEST_F(RingTest, AWorkerLacksAProcessorIfItIsOnItsClientsAndMaySpin) {
  const OnOneProcessor here(usableProcessors().front());
  client_.allowSpin(20, currentProcessor());
  EXPECT_TRUE(worker_.lacksProcessor());
  EXPECT_EQ(worker_.spinAllowance(), 0);
  client_.allowSpin(0, currentProcessor());
  EXPECT_FALSE(worker_.lacksProcessor()) << "it would not spin elsewhere";
  client_.allowSpin(20, currentProcessor() + 1);
  EXPECT_FALSE(worker_.lacksProcessor());
}

TEST_F(RingTest, AnAnswerStatesHowLongTheWorkerHadTheCall) {
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  const std::vector<std::pair<int64_t, uint32_t>> statedAs = {
      {0, 0}, {1234, 1234}, {-1, 0}, {kMost, kMost}, {int64_t{kMost} + 1, kMost}};
  for (const auto& [stated, received] : statedAs) {
    publish(1);
    ASSERT_EQ(worker_.peek(call_), Received::kOne);
    worker_.taken();
    worker_.complete(call_.sequence, CompletionStatus::kValue, {}, Work::kCall, stated);
    ASSERT_EQ(client_.peek(completion_), Received::kOne);
    EXPECT_EQ(completion_.workNanoseconds, received);
    client_.consumed();
  }
}

TEST_F(RingTest, AClientKnowsOfAWorkerThatSleepsOnItsProcessor) {
  const OnOneProcessor here(usableProcessors().front());
  publish(1);
  runOne();  // the answer contains the worker's processor
  EXPECT_FALSE(client_.workerSleepsHere());
  worker_.announceSleep();
  EXPECT_TRUE(client_.workerSleepsHere());
  worker_.withdrawSleep();
  EXPECT_FALSE(client_.workerSleepsHere());
}

TEST_F(RingTest, AClientDoesNotMindAWorkerThatSleepsOnAnotherProcessor) {
  const std::vector<int> processors = usableProcessors();
  if (processors.size() < 2) GTEST_SKIP() << "this process may use one processor only";
  {
    const OnOneProcessor there(processors.front());
    publish(1);
    runOne();
    worker_.announceSleep();
  }
  const OnOneProcessor here(processors.back());
  EXPECT_FALSE(client_.workerSleepsHere());
}

TEST_F(RingTest, ASleepingWorkerIsRousedForACallThatIsToCome) {
  worker_.announceSleep();
  std::atomic<bool> awake = false;
  std::thread sleeper([&] {
    const auto [word, expected] = worker_.watch();
    const FutexWatch watch{word, expected};
    futexWait({&watch, 1}, std::chrono::seconds(60));
    awake = true;
  });
  const int64_t patience = monotonicNow() + 10'000'000'000;
  while (!awake && monotonicNow() < patience) client_.rouse();
  EXPECT_TRUE(awake);
  sleeper.join();
  EXPECT_FALSE(worker_.callReady());
}

/// The same with a worker in a thread, which the thread sanitizer sees, and in a process, where
/// each segment has one writable mapping.
class RingBetween : public testing::TestWithParam<PeerKind> {
 protected:
  RingBetween()
      : memory_(GetParam() == PeerKind::kThread ? ChannelMemory::Views::kCommon
                                                : ChannelMemory::Views::kSealed),
        client_(kEpoch, memory_.clientOwn(), memory_.clientPeer()) {}

  void startWorker() {
    worker_.emplace(GetParam(), [this] {
      WorkerEnd end(kEpoch, memory_.workerOwn(), memory_.workerPeer());
      end.attach();
      tests::serve(end, [](const ReceivedCall& call) {
        const bool right = isContentOf(2 * call.sequence, call.bytes, call.payload.inlineBytes);
        return contentOf(right ? 2 * call.sequence + 1 : 0);
      });
    });
  }
  void publishNext(uint32_t flags = 0) {
    const std::vector<std::byte> content = contentOf(2 * (published_ + 1));
    OutgoingCall call = callWith(content);
    call.flags = flags;
    ASSERT_EQ(client_.publish(call), ++published_);
  }
  /// Consumes and checks all completions that are ready.
  void checkAnswers(CompletionStatus status = CompletionStatus::kValue) {
    ReceivedCompletion completion;
    while (client_.completionReady()) {
      ASSERT_EQ(client_.peek(completion), Received::kOne);
      client_.consumed();
      const uint64_t sequence = answered_.fetch_add(1) + 1;
      ASSERT_EQ(completion.sequence, sequence);
      ASSERT_EQ(completion.status, static_cast<uint32_t>(status));
      ASSERT_TRUE(isContentOf(2 * sequence + 1, completion.bytes, completion.payload.inlineBytes));
    }
  }
  void farewell() {
    publishNext(tests::kFarewell);
    ASSERT_EQ(tests::sleepUntilCompletion(client_), Awaited::kReady);
    checkAnswers();
    EXPECT_EQ(worker_->waitForEnd(), 0);
    EXPECT_EQ(client_.peer().completedCalls.load(), published_);
  }

  ChannelMemory memory_;
  ClientEnd client_;
  std::optional<Peer> worker_;
  uint64_t published_ = 0;
  std::atomic<uint64_t> answered_{0};
};

TEST_P(RingBetween, AHundredThousandCallsAreAnsweredInOrderAndWhole) {
  startWorker();
  while (answered_ < 100'000 && !HasFatalFailure()) {
    while (published_ - answered_ < kRingSlots && client_.canPublish()) publishNext();
    ASSERT_EQ(tests::sleepUntilCompletion(client_), Awaited::kReady) << "after " << answered_;
    checkAnswers();
  }
  farewell();
}

TEST_P(RingBetween, OneThreadMayPublishWhileAnotherConsumes) {
  startWorker();
  constexpr uint64_t kCalls = 50'000;
  std::thread publisher([&] {
    while (published_ < kCalls) {
      if (published_ - answered_ < kRingSlots && client_.canPublish()) publishNext();
    }
  });
  while (answered_ < kCalls && !HasFatalFailure()) {
    EXPECT_EQ(tests::sleepUntilCompletion(client_), Awaited::kReady) << "after " << answered_;
    checkAnswers();
  }
  publisher.join();
  farewell();
}

TEST_P(RingBetween, NoWakeUpIsLostWhenBothSleepBetweenAnyTwoCalls) {
  startWorker();
  for (int i = 0; i < 10'000 && !HasFatalFailure(); ++i) {
    publishNext();
    ASSERT_EQ(tests::sleepUntilCompletion(client_), Awaited::kReady) << "call " << i;
    checkAnswers();
  }
  farewell();
}

/// The worker counts the calls that it has run, in memory that it shares with the test.
TEST_P(RingBetween, OfStartAndRecallExactlyOneWins) {
  struct Runs {
    std::atomic<uint64_t> last{0};
    std::atomic<uint64_t> count{0};
  };
  tests::SharedWithChildren<Runs> runs;
  worker_.emplace(GetParam(), [this, &runs] {
    WorkerEnd end(kEpoch, memory_.workerOwn(), memory_.workerPeer());
    end.attach();
    ReceivedCall call;
    for (;;) {
      // Spins, so that it starts the call at about the time at which the client recalls it.
      while (!spinUntil([&] { return end.callReady(); }, monotonicNow(), 1'000'000)) {
      }
      if (end.peek(call) != Received::kOne) return;
      end.taken();
      if (end.start(call.sequence) == Start::kRecalled) {
        end.complete(call.sequence, CompletionStatus::kWithdrawn, {});
      } else {
        runs->last = call.sequence;
        ++runs->count;
        end.complete(call.sequence, CompletionStatus::kValue, {});
      }
      if (call.flags == tests::kFarewell) return;
    }
  });
  ReceivedCompletion completion;
  uint64_t ran = 0;
  uint64_t withdrawn = 0;
  int delay = 0;  // hovers where both outcomes are likely
  // If the machine runs the worker rarely, an attempt takes milliseconds: fewer attempts
  // are enough.
  const int64_t enough = monotonicNow() + 10'000'000'000;
  for (int attempt = 0; attempt < 30'000; ++attempt) {
    if (ran > 100 && withdrawn > 100 && monotonicNow() > enough) break;
    const uint64_t sequence = client_.publish({});
    for (int i = 0; i < delay; ++i) pauseProcessor();
    const bool recalled = client_.recall(sequence);
    ASSERT_EQ(tests::sleepUntilCompletion(client_), Awaited::kReady);
    ASSERT_EQ(client_.peek(completion), Received::kOne);
    client_.consumed();
    ASSERT_EQ(completion.sequence, sequence);
    const bool hasRun = runs->last == sequence;
    const auto status = static_cast<CompletionStatus>(completion.status);
    ASSERT_EQ(status, hasRun ? CompletionStatus::kValue : CompletionStatus::kWithdrawn);
    ASSERT_FALSE(recalled && hasRun) << "both won";
    ++(hasRun ? ran : withdrawn);
    // The steps grow, so that they also reach the delay of a worker that rarely runs.
    if (!hasRun && delay < 1'000'000) delay += 1 + delay / 8;
    if (hasRun && delay > 0) delay -= 1 + delay / 8;
  }
  EXPECT_EQ(runs->count, ran);
  EXPECT_GT(ran, 0u);
  EXPECT_GT(withdrawn, 0u);
  OutgoingCall last;
  last.flags = tests::kFarewell;
  client_.publish(last);
  EXPECT_EQ(worker_->waitForEnd(), 0);
}

INSTANTIATE_TEST_SUITE_P(Peers, RingBetween, testing::Values(PeerKind::kThread, PeerKind::kProcess),
                         [](const auto& peers) {
                           return peers.param == PeerKind::kThread ? "Threads" : "Processes";
                         });

}  // namespace
}  // namespace isopool::ipc
