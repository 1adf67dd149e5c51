// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/liveness_word.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/ipc/channel/peers.h"

namespace isopool::ipc {
namespace {

using std::chrono::milliseconds;
using tests::Awaited;
using tests::ChannelMemory;
using tests::Peer;
using tests::PeerKind;

constexpr base::Epoch kEpoch(1);

/// A worker process that attaches and then runs `then`.
class LivenessWordTest : public testing::Test {
 protected:
  void startWorker(const std::function<void()>& then) {
    worker_.emplace(PeerKind::kProcess, [&] {
      WorkerEnd end(kEpoch, memory_.workerOwn(), memory_.workerPeer());
      end.attach();
      then();
    });
    const FutexWatch attached{&client_.peer().attached, 0};
    while (!client_.attached()) futexWait({&attached, 1}, std::nullopt);
  }
  static void sleepForEver() {
    for (;;) ::pause();
  }

  ChannelMemory memory_{ChannelMemory::Views::kSealed};
  ClientEnd client_{kEpoch, memory_.clientOwn(), memory_.clientPeer()};
  std::optional<Peer> worker_;
};

TEST_F(LivenessWordTest, WorksOnThisSystem) { EXPECT_TRUE(livenessWordWorksHere()); }

TEST_F(LivenessWordTest, TellsOfAKillThroughAReadOnlyMapping) {
  startWorker(sleepForEver);
  EXPECT_FALSE(livenessWordOwnerDied(client_.peer()));
  std::thread killer([&] { worker_->signal(SIGKILL); });
  EXPECT_EQ(tests::sleepUntilCompletion(client_), Awaited::kDead);
  killer.join();
  EXPECT_TRUE(worker_->gone(milliseconds(5000)));
  EXPECT_TRUE(livenessWordOwnerDied(client_.peer())) << "the word keeps its state";
}

TEST_F(LivenessWordTest, TellsOfAnExit) {
  startWorker([] { ::_exit(3); });
  EXPECT_EQ(tests::sleepUntilCompletion(client_), Awaited::kDead);
}

TEST_F(LivenessWordTest, TellsOfAnAbort) {
  startWorker([] { ::abort(); });
  EXPECT_EQ(tests::sleepUntilCompletion(client_), Awaited::kDead);
}

TEST_F(LivenessWordTest, AStoppedHolderIsAlive) {
  startWorker(sleepForEver);
  worker_->signal(SIGSTOP);
  const FutexWatch life = watchLivenessWord(client_.peer());
  futexWait({&life, 1}, milliseconds(50));
  EXPECT_FALSE(livenessWordOwnerDied(client_.peer()));
  worker_->signal(SIGKILL);
  EXPECT_EQ(tests::sleepUntilCompletion(client_), Awaited::kDead);
}

TEST_F(LivenessWordTest, OtherThreadsOfTheHolderMayEnd) {
  startWorker([] {
    std::thread([] {}).join();
    sleepForEver();
  });
  const FutexWatch life = watchLivenessWord(client_.peer());
  futexWait({&life, 1}, milliseconds(50));
  EXPECT_FALSE(livenessWordOwnerDied(client_.peer()));
}

TEST(LivenessWord, TellsOfTheHoldersThreadAlone) {
  ChannelMemory memory(ChannelMemory::Views::kCommon);
  auto* control = new (&memory.workerControl()) WorkerControl;
  std::thread([&] { holdLivenessWord(*control); }).join();
  EXPECT_TRUE(livenessWordOwnerDied(*control));
}

TEST(LivenessWord, AHolderMayLeaveChannelsAndTheOthersStillTellOfItsDeath) {
  // Like a worker of a shared pool whose clients attach and leave.
  constexpr int kChannels = 30;
  std::vector<ChannelMemory> memories;
  std::vector<std::unique_ptr<ClientEnd>> clients;
  for (int i = 0; i < kChannels; ++i) {
    memories.emplace_back(ChannelMemory::Views::kSealed);
    clients.push_back(
        std::make_unique<ClientEnd>(kEpoch, memories[i].clientOwn(), memories[i].clientPeer()));
  }
  Peer worker(PeerKind::kProcess, [&] {
    std::vector<std::unique_ptr<WorkerEnd>> ends;
    for (ChannelMemory& memory : memories) {
      ends.push_back(std::make_unique<WorkerEnd>(kEpoch, memory.workerOwn(), memory.workerPeer()));
      ends.back()->attach();
      // Two of three channels are closed soon after they are attached, one of them by
      // another thread.
      if (ends.size() % 3 == 0) {
        ends[ends.size() - 2].reset();
        std::thread([&] { ends[ends.size() - 3].reset(); }).join();
      }
    }
    ::raise(SIGKILL);
  });
  ASSERT_TRUE(worker.gone(milliseconds(5000)));
  EXPECT_EQ(WTERMSIG(worker.waitForEnd()), SIGKILL);
  for (int i = 0; i < kChannels; ++i) {
    EXPECT_TRUE(clients[i]->attached()) << i;
    EXPECT_TRUE(i % 3 != 2 || livenessWordOwnerDied(clients[i]->peer())) << i;
  }
}

TEST(LivenessWord, IsSeenLongBeforeTheProcessIsGone) {
  std::vector<int64_t> microseconds;
  for (int round = 0; round < 30; ++round) {
    ChannelMemory memory(ChannelMemory::Views::kSealed);
    ClientEnd client(kEpoch, memory.clientOwn(), memory.clientPeer());
    Peer worker(PeerKind::kProcess, [&] {
      WorkerEnd end(kEpoch, memory.workerOwn(), memory.workerPeer());
      end.attach();
      for (;;) ::pause();
    });
    const FutexWatch attached{&client.peer().attached, 0};
    while (!client.attached()) futexWait({&attached, 1}, std::nullopt);
    const int64_t killed = monotonicNow();
    worker.signal(SIGKILL);
    ASSERT_EQ(tests::sleepUntilCompletion(client), Awaited::kDead);
    microseconds.push_back((monotonicNow() - killed) / 1000);
  }
  std::sort(microseconds.begin(), microseconds.end());
  RecordProperty("median_microseconds", static_cast<int>(microseconds[15]));
  RecordProperty("worst_microseconds", static_cast<int>(microseconds.back()));
  // About 150 on a quiet machine; the bound leaves room for a busy one.
  EXPECT_LT(microseconds[15], 20'000);
}

}  // namespace
}  // namespace isopool::ipc
