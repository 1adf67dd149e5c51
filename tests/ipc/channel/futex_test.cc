// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/channel/futex.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "ipc/memory/memory_object.h"

namespace isopool::ipc {
namespace {

using std::chrono::milliseconds;
using Words = std::array<SharedWord<uint32_t>, 2>;

int64_t millisecondsSince(int64_t begin) { return (monotonicNow() - begin) / 1'000'000; }

TEST(Futex, AWordThatHasChangedAlreadyIsNotSleptOn) {
  SharedWord<uint32_t> word{1};
  SharedWord<uint32_t> other{5};
  const FutexWatch changed{&word, 0};
  futexWait({&changed, 1}, std::nullopt);
  // Of several words, any one may have changed.
  const std::array watches{FutexWatch{&other, 5}, changed};
  futexWait(watches, std::nullopt);
}

TEST(Futex, ASleepEndsWithItsTimeout) {
  SharedWord<uint32_t> word{0};
  const std::array watches{FutexWatch{&word, 0}, FutexWatch{&word, 0}};
  for (const size_t count : {size_t{1}, size_t{2}}) {
    const int64_t begin = monotonicNow();
    // A sleep may end early without a reason, so it is started again, as callers do.
    while (millisecondsSince(begin) < 20) {
      futexWait({watches.data(), count}, milliseconds(20) - milliseconds(millisecondsSince(begin)));
    }
    EXPECT_LT(millisecondsSince(begin), 2000) << count << " words";
  }
}

TEST(Futex, ATimeoutInThePastDoesNotSleep) {
  SharedWord<uint32_t> word{0};
  const std::array watches{FutexWatch{&word, 0}, FutexWatch{&word, 0}};
  for (const size_t count : {size_t{1}, size_t{2}}) {
    futexWait({watches.data(), count}, milliseconds(-5));
    futexWait({watches.data(), count}, milliseconds(0));
  }
}

TEST(Futex, NothingToWatchIsNoSleep) { futexWait({}, std::nullopt); }

/// Two threads pass a number back and forth. Each sleeps without a time-out while the other has it:
/// if a wake-up is lost, the test runs into its own time-out.
void handToAndFro(Words& words, const Words& readWords, size_t watchedWords) {
  constexpr uint32_t kRounds = 10'000;
  static const SharedWord<uint32_t> kNever{0};
  const auto waitFor = [&](size_t word, uint32_t value) {
    for (;;) {
      const uint32_t now = readWords[word].load();
      if (now >= value) return;
      const std::array watches{FutexWatch{&readWords[word], now}, FutexWatch{&kNever, 0}};
      futexWait({watches.data(), watchedWords}, std::nullopt);
    }
  };
  std::thread other([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      waitFor(0, round);
      words[1].store(round);
      futexWake(words[1]);
    }
  });
  for (uint32_t round = 1; round <= kRounds; ++round) {
    words[0].store(round);
    futexWake(words[0]);
    waitFor(1, round);
  }
  other.join();
}

TEST(Futex, NoWakeUpIsLost) {
  Words words{};
  handToAndFro(words, words, 1);
}

TEST(Futex, NoWakeUpIsLostWhileTwoWordsAreWatched) {
  Words words{};
  handToAndFro(words, words, 2);
}

TEST(Futex, AReadOnlyMappingIsEnoughToSleepOn) {
  const base::Fd object = createMemoryObject("test", kPageBytes);
  const Mapping writer = mapShared(object, 0, kPageBytes, Access::kReadWrite, Prefault::kYes);
  const Mapping reader = mapShared(object, 0, kPageBytes, Access::kReadOnly, Prefault::kYes);
  handToAndFro(*new (writer.data()) Words{}, *reinterpret_cast<const Words*>(reader.data()), 2);
}

TEST(Futex, OneWakeReachesEverySleeper) {
  SharedWord<uint32_t> word{0};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 8; ++i) {
    sleepers.emplace_back([&] {
      const FutexWatch watch{&word, 0};
      while (word.load() == 0) futexWait({&watch, 1}, std::nullopt);
    });
  }
  word.store(1);
  futexWake(word);
  for (std::thread& sleeper : sleepers) sleeper.join();
}

}  // namespace
}  // namespace isopool::ipc
