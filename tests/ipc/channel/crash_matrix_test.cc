// SPDX-License-Identifier: BSD-3-Clause
// One end of a channel is killed by SIGKILL at every crash point of the channel's code, the first
// time that it reaches the point or a later time. The other end must be able to tell which calls
// were completed, which had started, and which had not.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ipc/channel/liveness_word.h"
#include "ipc/crash_point.h"
#include "tests/ipc/channel/peers.h"

namespace isopool::ipc {
namespace {

using std::chrono::milliseconds;
using tests::Awaited;
using tests::callWith;
using tests::ChannelMemory;
using tests::contentOf;
using tests::isContentOf;
using tests::Peer;
using tests::PeerKind;

constexpr base::Epoch kEpoch(9);
constexpr uint64_t kCalls = 40;

struct Death {
  CrashPoint point;
  uint32_t nth;
};

void PrintTo(const Death& death, std::ostream* out) {  // NOLINT: as GoogleTest looks for it
  *out << crashPointName(death.point) << ":" << death.nth;
}

std::string nameOf(const testing::TestParamInfo<Death>& death) {
  return std::string(crashPointName(death.param.point)) + "_" + std::to_string(death.param.nth);
}

std::vector<Death> deathsAt(const std::vector<CrashPoint>& points,
                            const std::vector<uint32_t>& times) {
  std::vector<Death> deaths;
  for (const CrashPoint point : points) {
    for (const uint32_t nth : times) deaths.push_back({point, nth});
  }
  return deaths;
}

bool wasKilled(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

class CrashMatrix : public testing::TestWithParam<Death> {
 protected:
  static void arm() { armCrashPoint(GetParam().point, GetParam().nth); }

  ChannelMemory memory_{ChannelMemory::Views::kSealed};
};

// ---- The worker dies -------------------------------------------------------------------------

class WorkerDies : public CrashMatrix {
 protected:
  /// What the worker's user code did, by sequence: the truth with which the client's view
  /// is compared.
  struct Truth {
    std::array<std::atomic<bool>, kCalls + 1> ran{};
  };

  void startWorker() {
    worker_ = std::make_unique<Peer>(PeerKind::kProcess, [this] {
      arm();
      WorkerEnd end(kEpoch, memory_.workerOwn(), memory_.workerPeer());
      end.attach();
      tests::serve(end, [this](const ReceivedCall& call) {
        truth_->ran[call.sequence] = true;
        return contentOf(call.sequence);
      });
      for (;;) tests::sleepUntilCall(end);
    });
  }
  /// Keeps two calls in flight, as a pool does, recalls some, and records the answers, until all
  /// are answered or the worker is dead.
  void callUntilDeath() {
    for (;;) {
      while (published_ < kCalls && published_ - answered_.size() < 2) {
        published_ = client_.publish(callWith(contentOf(published_ + 1)));
        if (published_ % 7 == 0) client_.recall(published_);
      }
      const Awaited awaited = tests::sleepUntilCompletion(client_);
      ASSERT_NE(awaited, Awaited::kLate);
      if (awaited == Awaited::kDead) return;
      ReceivedCompletion completion;
      ASSERT_EQ(client_.peek(completion), Received::kOne);
      client_.consumed();
      ASSERT_EQ(completion.sequence, answered_.size() + 1) << "out of order";
      answered_.push_back(static_cast<CompletionStatus>(completion.status));
      if (answered_.back() == CompletionStatus::kValue) {
        ASSERT_TRUE(
            isContentOf(completion.sequence, completion.bytes, completion.payload.inlineBytes));
      } else {
        ASSERT_EQ(answered_.back(), CompletionStatus::kWithdrawn);
      }
      if (answered_.size() == kCalls) break;
    }
    // The worker may reach a crash point of sleeping only now, when no call is left.
    if (!worker_->gone(milliseconds(20))) worker_->signal(SIGKILL);
    ASSERT_EQ(tests::sleepUntilCompletion(client_), Awaited::kDead);
  }
  void checkWhatCanBeTold() {
    uint64_t lost = 0;
    for (uint64_t sequence = 1; sequence <= published_; ++sequence) {
      const bool ran = truth_->ran[sequence];
      const bool started = client_.hasStarted(sequence);
      if (sequence <= answered_.size()) {
        EXPECT_TRUE(started) << sequence << " was answered";
        EXPECT_EQ(ran, answered_[sequence - 1] == CompletionStatus::kValue) << sequence;
      } else {
        EXPECT_TRUE(started || !ran) << sequence << " would run twice";
        lost += started ? 1 : 0;
      }
    }
    EXPECT_LE(lost, 1u) << "only the running call may be lost";
    EXPECT_FALSE(client_.completionReady());
  }

  ClientEnd client_{kEpoch, memory_.clientOwn(), memory_.clientPeer()};
  tests::SharedWithChildren<Truth> truth_;
  std::unique_ptr<Peer> worker_;
  uint64_t published_ = 0;
  std::vector<CompletionStatus> answered_;
};

class AttachedWorkerDies : public WorkerDies {};

TEST_P(AttachedWorkerDies, AndTheClientKnowsWhatWasCompletedAndWhatHadStarted) {
  startWorker();
  callUntilDeath();
  if (HasFatalFailure()) return;
  EXPECT_TRUE(worker_->gone(milliseconds(5000))) << "the pidfd shows no end";
  EXPECT_TRUE(wasKilled(worker_->waitForEnd()));
  checkWhatCanBeTold();
}

INSTANTIATE_TEST_SUITE_P(
    Serving, AttachedWorkerDies,
    testing::ValuesIn(deathsAt({CrashPoint::kSubmissionCopied, CrashPoint::kSubmissionHeadStored,
                                CrashPoint::kStartedStored, CrashPoint::kCompletionSlotWritten,
                                CrashPoint::kCompletionTailStored, CrashPoint::kCompletionWoken,
                                CrashPoint::kSleepAnnounced, CrashPoint::kSleepWithdrawn},
                               {1, 2, 3, 6, 7, 8, 20, 33, 40})),
    nameOf);
INSTANTIATE_TEST_SUITE_P(Attaching, AttachedWorkerDies,
                         testing::ValuesIn(deathsAt({CrashPoint::kChannelAttached}, {1})), nameOf);

class AttachingWorkerDies : public WorkerDies {};

TEST_P(AttachingWorkerDies, AndTheClientSeesThatItNeverServed) {
  startWorker();
  published_ = client_.publish(callWith(contentOf(1)));
  ASSERT_TRUE(worker_->gone(milliseconds(5000)));
  EXPECT_TRUE(wasKilled(worker_->waitForEnd()));
  EXPECT_FALSE(client_.attached());
  EXPECT_EQ(livenessWordOwnerDied(client_.peer()),
            GetParam().point == CrashPoint::kLivenessWordHeld);
  checkWhatCanBeTold();
}

INSTANTIATE_TEST_SUITE_P(
    Attaching, AttachingWorkerDies,
    testing::ValuesIn(deathsAt({CrashPoint::kChannelMapped, CrashPoint::kLivenessWordHeld}, {1})),
    nameOf);

// ---- The client dies -------------------------------------------------------------------------

class ClientDies : public CrashMatrix {
 protected:
  /// How far the client has come.
  struct Truth {
    std::atomic<uint64_t> publishing{0};
    std::atomic<uint64_t> published{0};
  };

  void startClient() {
    client_ = std::make_unique<Peer>(PeerKind::kProcess, [this] {
      arm();
      ClientEnd end(kEpoch, memory_.clientOwn(), memory_.clientPeer());
      ReceivedCompletion completion;
      uint64_t answered = 0;
      while (answered < kCalls) {
        while (truth_->published < kCalls && truth_->published - answered < 2) {
          const uint64_t sequence = truth_->published + 1;
          truth_->publishing = sequence;
          end.publish(callWith(contentOf(sequence)));
          truth_->published = sequence;
          if (sequence % 3 == 0) end.recall(sequence);
        }
        tests::sleepUntilCompletion(end);
        while (end.peek(completion) == Received::kOne) {
          end.consumed();
          ++answered;
        }
      }
    });
  }
  /// Serves until the client is dead and has no call left.
  void serveUntilDeath(WorkerEnd& end) {
    ReceivedCall call;
    for (;;) {
      const bool gone = client_->gone(milliseconds(0));
      const Received received = end.peek(call);
      ASSERT_NE(received, Received::kPoisoned);
      if (received == Received::kNothing) {
        if (gone) return;
        end.announceSleep();
        const auto [word, expected] = end.watch();
        const FutexWatch submission{word, expected};
        // A doorbell would wake a real worker; here the time-out replaces it.
        if (!end.callReady()) futexWait({&submission, 1}, milliseconds(5));
        end.withdrawSleep();
        continue;
      }
      ASSERT_EQ(call.sequence, received_ + 1) << "out of order";
      ASSERT_TRUE(isContentOf(call.sequence, call.bytes, call.payload.inlineBytes))
          << call.sequence << " is not whole";
      received_ = call.sequence;
      end.taken();
      const bool run = end.start(call.sequence) == Start::kRun;
      EXPECT_TRUE(run || call.sequence % 3 == 0) << call.sequence << " was never recalled";
      end.complete(call.sequence, run ? CompletionStatus::kValue : CompletionStatus::kWithdrawn,
                   {});
    }
  }

  tests::SharedWithChildren<Truth> truth_;
  std::unique_ptr<Peer> client_;
  uint64_t received_ = 0;
};

TEST_P(ClientDies, AndTheWorkerGetsEveryPublishedCallWholeAndNoOther) {
  WorkerEnd end(kEpoch, memory_.workerOwn(), memory_.workerPeer());
  startClient();
  serveUntilDeath(end);
  if (HasFatalFailure()) return;
  EXPECT_TRUE(wasKilled(client_->waitForEnd())) << "it never reached that point";
  switch (GetParam().point) {
    case CrashPoint::kSubmissionSlotWritten:
      EXPECT_EQ(received_, truth_->published);
      EXPECT_EQ(truth_->publishing, truth_->published + 1);
      break;
    case CrashPoint::kSubmissionTailStored:
    case CrashPoint::kSubmissionWoken:
      EXPECT_EQ(received_, truth_->published + 1);
      break;
    default:
      EXPECT_EQ(received_, truth_->published);
  }
}

INSTANTIATE_TEST_SUITE_P(Calling, ClientDies,
                         testing::ValuesIn(deathsAt(
                             {CrashPoint::kSubmissionSlotWritten, CrashPoint::kSubmissionTailStored,
                              CrashPoint::kSubmissionWoken, CrashPoint::kCompletionHeadStored},
                             {1, 2, 3, 20, 32, 33, 40})),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Recalling, ClientDies,
                         testing::ValuesIn(deathsAt({CrashPoint::kRecallStored}, {1, 2, 5, 13})),
                         nameOf);
// How often the client sleeps depends on the machine; a few times are certain.
INSTANTIATE_TEST_SUITE_P(Sleeping, ClientDies,
                         testing::ValuesIn(deathsAt({CrashPoint::kSleepAnnounced,
                                                     CrashPoint::kSleepWithdrawn},
                                                    {1, 2, 3})),
                         nameOf);

}  // namespace
}  // namespace isopool::ipc
