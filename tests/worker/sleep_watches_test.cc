// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/sleep_watches.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "testing/context_switches.h"

namespace isopool::worker {
namespace {

// With any number of words, a change of any of them ends the sleep. If a change were lost, the test
// would hang until its time-out.
void expectWokenByEachOf(size_t words) {
  std::vector<ipc::SharedWord<uint32_t>> watched(words);
  SleepWatches watches;
  for (size_t changed = 0; changed<words; changed += words> 100 ? 37 : 1) {
    std::vector<uint32_t> expected;
    watches.clear();
    for (auto& word : watched) {
      expected.push_back(word.load());
      watches.add(&word, expected.back());
    }
    std::thread other([&] {
      watched[changed].fetch_add(1);
      ipc::futexWake(watched[changed]);
    });
    while (watched[changed].load() == expected[changed]) watches.sleep();
    other.join();
  }
}

TEST(SleepWatches, OneWordEndsTheSleep) { expectWokenByEachOf(1); }
TEST(SleepWatches, AnyOfAsManyAsTheKernelTakesEndsTheSleep) {
  expectWokenByEachOf(ipc::kMaxFutexWatches);
}
TEST(SleepWatches, AnyOfMoreThanTheKernelTakesEndsTheSleep) {
  expectWokenByEachOf(ipc::kMaxFutexWatches + 1);
}
TEST(SleepWatches, AnyOfAThousandEndsTheSleep) { expectWokenByEachOf(1000); }

TEST(SleepWatches, WordsThatAreGoneAreNotMissed) {
  SleepWatches watches;
  auto gone = std::make_unique<std::vector<ipc::SharedWord<uint32_t>>>(500);
  ipc::SharedWord<uint32_t> ours{0};
  watches.add(&ours, 1);  // not as expected: sleep() returns at once, its deputies sleep on
  for (auto& word : *gone) watches.add(&word, 0);
  watches.sleep();
  gone.reset();
  expectWokenByEachOf(300);
}

// The deputies that sleep for the sleeper must rest, too: a deputy that woke it would receive the
// words again, and so on.
void expectRestAfterEachWakeUp(size_t words) {
  std::vector<ipc::SharedWord<uint32_t>> watched(words);
  std::atomic<bool> over{false};
  std::atomic<uint64_t> sleeps{0};
  std::thread sleeper([&] {
    for (SleepWatches watches; !over;) {
      watches.clear();
      for (auto& word : watched) watches.add(&word, word.load());
      ++sleeps;
      watches.sleep();
    }
  });
  const auto wake = [&](ipc::SharedWord<uint32_t>& word) {
    word.fetch_add(1);
    ipc::futexWake(word);
  };
  for (auto* word : {&watched.front(), &watched.back()}) {
    EXPECT_TRUE(tests::restsForASecond([] {
      return tests::contextSwitchesOf(::getpid(), ::getpid());
    })) << words
        << " words: its threads wake each other";
    const uint64_t before = sleeps;
    wake(*word);
    while (sleeps == before) std::this_thread::yield();
  }
  EXPECT_TRUE(tests::restsForASecond([&] { return sleeps.load(); })) << words << " words";
  over = true;
  wake(watched.back());
  sleeper.join();
}

TEST(SleepWatches, NoThreadWakesWhileNoWordChanges) {
  for (const size_t words : {129, 300}) expectRestAfterEachWakeUp(words);
}

}  // namespace
}  // namespace isopool::worker
