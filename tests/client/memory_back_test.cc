// SPDX-License-Identifier: BSD-3-Clause
// Memory shared with real workers that goes back to the system, in both directions, and storages
// that move when they are resized.
#include <atomic>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

constexpr uint64_t kMB = 1'000'000;
// 4 seconds of idle time, and the time of a loaded machine.
constexpr milliseconds kIdlePatience(20'000);

/// Shared memory of a manager's processes and of this one, each page counted once.
uint64_t sharedMemoryOf(const OwnPool& pool) {
  uint64_t bytes = memoryOf(::getpid(), "Pss_Shmem");
  for (const pid_t process : pool.tree().all()) bytes += memoryOf(process, "Pss_Shmem");
  return bytes;
}

at::Tensor zeros(const Subject& subject, uint64_t bytes) {
  return subject.tensor("zeros", {static_cast<int64_t>(bytes / 4)});
}

TEST(MemoryBack, OneInputAtATimeMayHaveAnySizeWithinTheLimit) {
  Program program({PROGRAM, "one_at_a_time", packagePath()}, {"ISOPOOL_INPUT_ARENA_LIMIT=100MiB"});
  for (const int megabytes : {20, 30, 40, 50, 60, 90, 50}) {
    EXPECT_EQ(program.readLine(), std::to_string(megabytes) + ": 1");
  }
  EXPECT_EQ(program.readLine(), "ready");
  program.closeInput();
  EXPECT_EQ(program.waitForEnd(), 0);
}

TEST(MemoryBack, OneResultAtATimeMayHaveAnySizeWithinTheLimitOfItsWorker) {
  OwnPool pool(1, {"ISOPOOL_OUTPUT_ARENA_LIMIT=64MiB", "ISOPOOL_SPARES=0"});
  for (const uint64_t megabytes : {10, 20, 30, 40, 45, 56, 20, 45}) {
    // Below the limit for sure: the first segment has 4 MiB and is always counted.
    const at::Tensor result = zeros(pool.subject(), megabytes * kMB);
    EXPECT_TRUE(isShared(result)) << megabytes;
    EXPECT_EQ(result.sum().item<float>(), 0) << megabytes;
  }
}

TEST(MemoryBack, AResultBeyondTheLimitSaysWhatIsInUse) {
  OwnPool pool(1, {"ISOPOOL_OUTPUT_ARENA_LIMIT=64MiB", "ISOPOOL_SPARES=0"});
  const at::Tensor held = zeros(pool.subject(), 40 * kMB);
  try {
    zeros(pool.subject(), 40 * kMB);
    FAIL() << "there is no room for it";
  } catch (const ArenaFull& full) {
    for (const char* part : {"are in use", "largest free block", "ISOPOOL_OUTPUT_ARENA_LIMIT"}) {
      EXPECT_NE(std::string(full.what()).find(part), std::string::npos) << full.what();
    }
  }
}

TEST(MemoryBack, ReleasedTensorsReturnTheirMemoryWithinSeconds) {
  OwnPool pool(2, {"ISOPOOL_SPARES=0"});
  const uint64_t before = sharedMemoryOf(pool);
  {
    std::vector<at::Tensor> held;
    for (int i = 0; i < 6; ++i) {
      held.push_back(empty({static_cast<int64_t>(20 * kMB)}, at::kByte).fill_(1));
      EXPECT_EQ(pool.subject().ask("sums", {held.back()}).toDouble(), 20 * kMB);
      held.push_back(zeros(pool.subject(), 20 * kMB));
      for (int small = 0; small < 100; ++small) held.push_back(empty({10'000}).fill_(1));
    }
    EXPECT_GE(sharedMemoryOf(pool), before + 240 * kMB);
  }
  // 8 MiB of inputs stay, and what each worker had from the start.
  EXPECT_TRUE(waitUntil([&] { return sharedMemoryOf(pool) <= before + 20 * kMB; }, kIdlePatience))
      << sharedMemoryOf(pool) - before;
  // Counted until it has gone back.
  EXPECT_TRUE(waitUntil([&] { return pool.manager().statistics().inputBytes <= 9 * kMB; }));
  EXPECT_EQ(pool.subject().tensor("add_one", {empty({1'000'000}).fill_(1)}).sum().item<float>(),
            2'000'000);
}

TEST(MemoryBack, UnloadReturnsWhatTheModelKept) {
  OwnPool pool(1, {"ISOPOOL_SPARES=0"});
  const uint64_t before = sharedMemoryOf(pool);
  {
    Package package = pool.manager().loadPackage(packagePath());
    ReplicatedObj loaded = package.loadPickle("model", "model.pkl");
    const Subject model(loaded);
    // The first ones are made on the heap, until the worker has room for them.
    ASSERT_TRUE(waitUntil([&] {
      model.ask("make_and_hide", {static_cast<int64_t>(5 * kMB)});
      return sharedMemoryOf(pool) >= before + 40 * kMB;
    }));
    loaded.unload();
  }
  EXPECT_TRUE(waitUntil([&] { return sharedMemoryOf(pool) <= before + 10 * kMB; }, kIdlePatience))
      << sharedMemoryOf(pool) - before;
}

TEST(MemoryBack, TrimReturnsTheMemoryOfProgramAndWorkersAtOnce) {
  OwnPool pool(1, {"ISOPOOL_SPARES=0"});
  const uint64_t before = sharedMemoryOf(pool);
  {
    const at::Tensor x = empty({static_cast<int64_t>(30 * kMB)}, at::kByte).fill_(1);
    const at::Tensor y = zeros(pool.subject(), 30 * kMB);
    EXPECT_GE(sharedMemoryOf(pool), before + 60 * kMB);
  }
  EXPECT_GE(trimSharedMemory(), 30 * kMB);
  // Well before the idle time is over. Workers are asked five times a second at most.
  const auto isBack = [&] {
    trimSharedMemory();
    return sharedMemoryOf(pool) <= before + 2 * kMB;
  };
  EXPECT_TRUE(waitUntil(isBack, milliseconds(1500))) << sharedMemoryOf(pool) - before;
  EXPECT_TRUE(zeros(pool.subject(), 30 * kMB).eq(0).all().item<bool>());
}

TEST(MemoryBack, TheModelKeepsAnInputWhoseSegmentWasReturned) {
  OwnPool pool(1, {"ISOPOOL_SPARES=0"});
  const Subject& subject = pool.subject();
  for (int round = 0; round < 3; ++round) {
    {
      at::Tensor x = empty({2'000'000}).fill_(round + 1);
      subject.ask("keep", {x});
      subject.ask("keep", {x.narrow(0, 1'000'000, 1000)});
      x.fill_(99);
    }
    trimSharedMemory();
    // The next segment may have the same number.
    EXPECT_EQ(subject.ask("sums", {empty({2'000'000}).fill_(1)}).toDouble(), 2'000'000);
    EXPECT_TRUE(subject.ask("all_kept_are", {1.0, 2.0, 3.0}).toBool());
    trimSharedMemory();
  }
  subject.ask("forget");
  EXPECT_EQ(subject.ask("sums", {empty({2'000'000}).fill_(1)}).toDouble(), 2'000'000);
}

TEST(MemoryBack, CallsOfThreadsAreRightWhileMemoryIsTrimmedAgainAndAgain) {
  OwnPool pool(2);
  std::atomic<int> wrong{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (int turn = 0; turn < 120; ++turn) {
        const int64_t count = std::array{1000, 50'000, 700'000, 1'500'000}[turn % 4];
        const double value = thread * 1000 + turn;
        const at::Tensor y = turn % 3 == 0
                                 ? pool.subject().tensor("add_one", {at::full({count}, value)})
                                 : pool.subject().tensor("add_one", {empty({count}).fill_(value)});
        if (y.numel() != count || !y.eq(value + 1).all().item<bool>()) ++wrong;
      }
    });
  }
  std::thread trimmer([&] {
    while (!over) trimSharedMemory();
  });
  for (std::thread& thread : threads) thread.join();
  over = true;
  trimmer.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool.manager().workersReplaced(), 0u);
}

TEST(MemoryBack, SurvivesTheDeathOfAWorkerAmidRetiredSegments) {
  OwnPool pool(2);
  for (int round = 0; round < 4; ++round) {
    { pool.subject().ask("sums", {empty({2'000'000}).fill_(1)}); }
    ::kill(pool.processOf(round % 2), SIGKILL);
    trimSharedMemory();
    const auto answered = [&] {
      try {
        return pool.subject().ask("sums", {empty({2'000'000}).fill_(2)}).toDouble() == 4'000'000;
      } catch (const WorkerLost&) {
        return false;
      }
    };
    EXPECT_TRUE(waitUntil(answered));
  }
  EXPECT_TRUE(
      waitUntil([&] { return pool.manager().statistics().inputBytes <= 9 * kMB; }, kIdlePatience));
}

// ---- resizing ----------------------------------------------------------------------------------

TEST(Resize, AResultIsResizedAsAnOrdinaryTensorAndReturnsItsBlock) {
  OwnPool pool(1, {"ISOPOOL_SPARES=0"});
  const auto lent = [&] { return pool.manager().statistics().workers[0].outputBlocksLent; };
  at::Tensor result = pool.subject().tensor("add_one", {at::full({100'000}, 1.0f)});
  ASSERT_TRUE(isShared(result));
  ASSERT_EQ(lent(), 1u);
  result.resize_({50'000});
  EXPECT_TRUE(isShared(result)) << "a smaller one stays where it is";
  result.resize_({300'000});
  EXPECT_FALSE(isShared(result));
  EXPECT_EQ(lent(), 0u);
  EXPECT_TRUE(result.narrow(0, 0, 100'000).eq(2).all().item<bool>()) << "the data are kept";
  result.fill_(7);
  EXPECT_EQ(pool.subject().ask("sums", {result}).toDouble(), 2'100'000);

  at::Tensor out = pool.subject().tensor("add_one", {at::full({100'000}, 1.0f)});
  at::add_out(out, at::ones({400'000}), 1);
  EXPECT_EQ(out.numel(), 400'000);
  EXPECT_TRUE(out.eq(2).all().item<bool>());

  at::Tensor other = pool.subject().tensor("add_one", {at::full({100'000}, 1.0f)});
  other.set_(at::full({10}, 9.0f));
  EXPECT_TRUE(other.eq(9).all().item<bool>());
  EXPECT_EQ(lent(), 0u);
}

TEST(Resize, AWeightOfAnAnswerIsResizedAsAnOrdinaryTensor) {
  at::Tensor weight = sharedSubject().tensor("return_weight");
  const at::Tensor before = weight.clone();
  weight.resize_({weight.numel() * 2});
  EXPECT_TRUE(weight.narrow(0, 0, before.numel()).equal(before.view({-1})));
  EXPECT_TRUE(sharedSubject().tensor("return_weight").equal(before)) << "the model's is unchanged";
}

TEST(Resize, OfAnInputDuringItsCallLeavesTheWorkersMemoryAlone) {
  OwnPool pool(1, {"ISOPOOL_SPARES=0"});
  const Gate gate;
  at::Tensor x = empty({3'000'000}).fill_(5);
  at::Tensor home = pool.subject().tensor("add_one", {at::full({3'000'000}, 1.0f)});
  std::vector<at::IValue> arguments = gate.arguments();
  arguments.push_back(std::vector<at::Tensor>{x, home});
  std::thread call([&] { pool.subject().ask("wait_at", arguments); });
  gate.arrival();
  x.resize_({6'000'000}).fill_(1);
  home.resize_({6'000'000}).fill_(1);
  trimSharedMemory();
  const at::Tensor next = empty({3'000'000}).fill_(8);
  gate.open();
  call.join();
  EXPECT_EQ(pool.subject().ask("sums", {next}).toDouble(), 24'000'000);
  EXPECT_EQ(pool.subject().ask("sums", {x}).toDouble(), 6'000'000);
  EXPECT_EQ(pool.manager().workersReplaced(), 0u);
}

}  // namespace
}  // namespace isopool::tests
