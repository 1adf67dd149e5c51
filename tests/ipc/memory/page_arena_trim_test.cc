// SPDX-License-Identifier: BSD-3-Clause
// What PageArena::trim() returns to the system, and that no block notices.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "ipc/memory/page_arena.h"
#include "tests/ipc/seed.h"

namespace isopool::ipc {
namespace {

constexpr size_t kMegabyte = 1 << 20;

/// An arena with a second descriptor of each segment, by which the kernel says what it holds.
class Trimmed {
 public:
  explicit Trimmed(size_t addressSpace = 256 * kMegabyte) : arena(addressSpace) {}

  void add(uint32_t id, size_t bytes, SegmentUse use = SegmentUse::kMany) {
    base::Fd object = createMemoryObject("test", bytes);
    objects_[id] = object.duplicate();
    ASSERT_TRUE(
        arena.addSegment(base::SegmentId(id), std::move(object), bytes, Prefault::kNo, use));
  }
  /// All steps of a trim. Returns the numbers of the segments that were removed.
  std::set<uint32_t> trim(TrimRule rule) {
    std::set<uint32_t> removed;
    uint32_t from = 0;
    do {
      const PageArena::TrimStep step = arena.trim(rule, from);
      trimmedBytes += step.bytes;
      for (size_t i = 0; i < step.removedCount; ++i) removed.insert(step.removed[i].value);
      from = step.next;
    } while (from != 0);
    return removed;
  }
  /// The memory that the system has given for all segments, also those that were removed.
  size_t kernelBytes() const {
    size_t bytes = 0;
    for (const auto& [id, object] : objects_) bytes += heldBytes(object);
    return bytes;
  }

  PageArena arena;
  size_t trimmedBytes = 0;

 private:
  std::map<uint32_t, base::Fd> objects_;
};

TEST(PageArenaTrim, RemovesAFreeSegmentAndItsMemoryIsGoneAlthoughOthersMapIt) {
  Trimmed trimmed;
  trimmed.add(1, kMegabyte);
  trimmed.add(2, 3 * kMegabyte, SegmentUse::kLarge);
  void* block = trimmed.arena.allocate(3 * kMegabyte);
  ASSERT_EQ(trimmed.arena.locate(block)->segment, base::SegmentId(2));
  EXPECT_TRUE(trimmed.trim(TrimRule::kAll).empty()) << "a block is alive";
  trimmed.arena.dropReference(block);
  EXPECT_EQ(trimmed.trim(TrimRule::kSegments), std::set<uint32_t>{2});
  EXPECT_EQ(trimmed.arena.capacityBytes(), kMegabyte);
  EXPECT_FALSE(trimmed.arena.locate(block));
  EXPECT_LE(trimmed.kernelBytes(), kMegabyte);
}

TEST(PageArenaTrim, UsesTheAddressesOfARemovedSegmentAgain) {
  Trimmed trimmed(4 * kMegabyte);
  trimmed.add(1, kMegabyte);
  for (uint32_t id = 2; id < 50; ++id) {
    trimmed.add(id, 3 * kMegabyte, SegmentUse::kLarge);
    auto* block = static_cast<std::byte*>(trimmed.arena.allocate(3 * kMegabyte));
    ASSERT_NE(block, nullptr);
    for (size_t at = 0; at < 3 * kMegabyte; at += kPageBytes) {
      ASSERT_EQ(block[at], std::byte{0}) << "an earlier segment's bytes";
      block[at] = std::byte{1};
    }
    trimmed.arena.dropReference(block);
    ASSERT_EQ(trimmed.trim(TrimRule::kSegments), std::set<uint32_t>{id});
  }
}

TEST(PageArenaTrim, AnIdleTrimTakesWhatHasBeenFreeSinceTheLastOneAndNotTheReserve) {
  Trimmed trimmed;
  trimmed.add(1, 4 * kMegabyte);
  trimmed.add(2, 4 * kMegabyte);
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(trimmed.arena.allocate(kMegabyte));
  for (void* block : blocks) trimmed.arena.dropReference(block);
  EXPECT_TRUE(trimmed.trim(TrimRule::kIdle).empty()) << "free for less than the time";
  EXPECT_EQ(trimmed.trimmedBytes, 0u);
  EXPECT_EQ(trimmed.trim(TrimRule::kIdle), std::set<uint32_t>{2});
  EXPECT_EQ(trimmed.trimmedBytes, 4 * kMegabyte);
  EXPECT_EQ(trimmed.kernelBytes(), 4 * kMegabyte) << "the reserve";
  EXPECT_TRUE(trimmed.trim(TrimRule::kIdle).empty());
  EXPECT_EQ(trimmed.kernelBytes(), 4 * kMegabyte) << "the reserve";
}

// The thread that trims has other work, which waits for one step at most.
TEST(PageArenaTrim, AStepReturnsALimitedNumberOfBytesAndTheStepsTogetherAll) {
  constexpr size_t kStep = PageArena::kBytesPerStep;
  Trimmed trimmed;
  trimmed.add(1, kMegabyte);
  trimmed.add(2, 4 * kStep + kPageBytes, SegmentUse::kLarge);
  std::vector<size_t> steps;
  uint32_t from = 0;
  do {
    const size_t before = trimmed.kernelBytes();
    const PageArena::TrimStep step = trimmed.arena.trim(TrimRule::kAll, from);
    EXPECT_EQ(before - trimmed.kernelBytes(), step.bytes);
    steps.push_back(step.bytes);
    from = step.next;
  } while (from != 0 && steps.size() < 100);
  EXPECT_LE(*std::max_element(steps.begin(), steps.end()), kStep);
  EXPECT_EQ(trimmed.kernelBytes(), 0u);
  EXPECT_EQ(trimmed.arena.segmentCount(), 1u) << "the free segment was not removed";
}

TEST(PageArenaTrim, AnIdleTrimOfManyStepsLeavesWhatWasInUseLately) {
  constexpr size_t kStep = PageArena::kBytesPerStep;
  Trimmed trimmed;
  trimmed.add(1, kMegabyte);
  trimmed.add(2, 8 * kStep);
  void* reserve = trimmed.arena.allocate(kMegabyte);
  trimmed.trim(TrimRule::kIdle);
  trimmed.arena.dropReference(trimmed.arena.allocate(3 * kStep));
  trimmed.trim(TrimRule::kIdle);
  EXPECT_EQ(trimmed.trimmedBytes, 5 * kStep);
  trimmed.trim(TrimRule::kIdle);
  EXPECT_EQ(trimmed.trimmedBytes, 8 * kStep);
  EXPECT_EQ(trimmed.kernelBytes(), kMegabyte);
  trimmed.arena.dropReference(reserve);
}

TEST(PageArenaTrim, BlocksThatComeAndGoDoNotKeepTheRestOfTheirSegment) {
  Trimmed trimmed;
  trimmed.add(1, kMegabyte);
  trimmed.add(2, 16 * kMegabyte);
  void* reserve = trimmed.arena.allocate(kMegabyte);  // so that the others lie in segment 2
  void* kept = trimmed.arena.allocate(kPageBytes);
  ASSERT_EQ(trimmed.arena.locate(kept)->segment, base::SegmentId(2));
  for (int turn = 0; turn < 3; ++turn) {
    trimmed.arena.dropReference(trimmed.arena.allocate(4 * kPageBytes));
    trimmed.trim(TrimRule::kIdle);
  }
  EXPECT_LE(trimmed.arena.heldBytes(), kMegabyte + 16 * kPageBytes);
  EXPECT_EQ(trimmed.kernelBytes(), trimmed.arena.heldBytes());
  trimmed.arena.dropReference(kept);
  trimmed.arena.dropReference(reserve);
}

TEST(PageArenaTrim, ASegmentThatADriverHasRegisteredIsNeverTrimmed) {
  Trimmed trimmed;
  trimmed.add(1, kMegabyte);
  trimmed.add(2, 4 * kMegabyte, SegmentUse::kLarge);
  void* block = trimmed.arena.allocate(4 * kMegabyte);
  trimmed.arena.keepSegmentOf(block);
  trimmed.arena.dropReference(block);
  for (const TrimRule rule :
       {TrimRule::kIdle, TrimRule::kIdle, TrimRule::kSegments, TrimRule::kAll}) {
    EXPECT_TRUE(trimmed.trim(rule).empty());
  }
  EXPECT_GE(trimmed.kernelBytes(), 4 * kMegabyte);
  EXPECT_EQ(trimmed.arena.allocate(4 * kMegabyte), block);
}

TEST(PageArenaTrim, ASmallBlockDoesNotKeepALargeFreeSegmentUnlessItMayLieAnywhere) {
  Trimmed trimmed;
  trimmed.add(1, 8 * kMegabyte, SegmentUse::kLarge);
  EXPECT_EQ(trimmed.arena.allocate(kPageBytes), nullptr);
  EXPECT_EQ(trimmed.arena.allocate(3 * kMegabyte), nullptr) << "less than half";
  EXPECT_NE(trimmed.arena.allocate(3 * kMegabyte, Fit::kAny), nullptr);
  EXPECT_NE(trimmed.arena.allocate(5 * kMegabyte), nullptr) << "the rest";
}

TEST(PageArenaTrim, AbsentPagesComeBackWithinTheLimitOnly) {
  Trimmed trimmed;
  trimmed.arena.limitHeld(6 * kMegabyte);
  trimmed.add(1, 4 * kMegabyte);
  trimmed.trim(TrimRule::kAll);
  EXPECT_EQ(trimmed.arena.heldBytes(), 0u);
  EXPECT_EQ(trimmed.kernelBytes(), 0u);
  trimmed.add(2, 4 * kMegabyte, SegmentUse::kLarge);
  void* large = trimmed.arena.allocate(4 * kMegabyte);
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(trimmed.arena.allocate(3 * kMegabyte, Fit::kAny), nullptr) << "7 MB of 6";
  EXPECT_NE(trimmed.arena.allocate(2 * kMegabyte, Fit::kAny), nullptr);
  EXPECT_EQ(trimmed.kernelBytes(), 6 * kMegabyte);
  EXPECT_EQ(trimmed.arena.heldBytes(), 6 * kMegabyte);
}

/// A block in use, filled with a number of its own.
struct Filled {
  uint64_t* data;
  size_t words;
  uint64_t mark;

  Filled(void* block, size_t bytes, uint64_t number)
      : data(static_cast<uint64_t*>(block)), words(bytes / sizeof(uint64_t)), mark(number) {
    for (size_t i = 0; i < words; i += 128) data[i] = mark;
  }
  bool isWhole() const {
    for (size_t i = 0; i < words; i += 128) {
      if (data[i] != mark) return false;
    }
    return true;
  }
};

// The property of the whole design: what is held is what is in use and what became free lately.
TEST(PageArenaTrim, HoldsWhatIsInUseAndTheReserveAfterTwoIdleTrimsOfRandomUse) {
  auto random = tests::seededRandom();
  Trimmed trimmed;
  PageArena& arena = trimmed.arena;
  constexpr size_t kReserve = kMegabyte;
  trimmed.add(1, kReserve);
  uint32_t segments = 1;
  std::vector<Filled> live;
  uint64_t marks = 0;
  const auto drop = [&](size_t index) {
    ASSERT_TRUE(live[index].isWhole()) << "a trim or another block has changed it";
    arena.dropReference(live[index].data);
    live[index] = live.back();
    live.pop_back();
  };
  for (int step = 0; step < 6000 && !HasFatalFailure(); ++step) {
    const int die = tests::pick(random, 0, 99);
    if (die < 50) {
      const size_t most = size_t{1} << tests::pick(random, 12, 22);
      const size_t bytes = roundUpToPages(tests::pick<size_t>(random, 1, most));
      void* block = arena.allocate(bytes, die % 2 == 0 ? Fit::kAny : Fit::kBest);
      if (block == nullptr && arena.hasRoomFor(8 * kMegabyte)) {
        const bool large = bytes > PageArena::kLargestSmallBlock;
        trimmed.add(++segments, large ? bytes : 4 * kMegabyte,
                    large ? SegmentUse::kLarge : SegmentUse::kMany);
        block = arena.allocate(bytes);
        ASSERT_NE(block, nullptr);
      }
      if (block != nullptr) live.emplace_back(block, bytes, ++marks);
    } else if (die < 98) {
      if (!live.empty()) drop(tests::pick<size_t>(random, 0, live.size() - 1));
    } else {
      trimmed.trim(static_cast<TrimRule>(tests::pick(random, 0, 2)));
    }
    ASSERT_GE(arena.heldBytes(), arena.bytesInUse());
    if (step % 500 != 499) continue;
    trimmed.trim(TrimRule::kIdle);
    trimmed.trim(TrimRule::kIdle);
    ASSERT_LE(arena.heldBytes(), arena.bytesInUse() + kReserve);
    ASSERT_EQ(trimmed.kernelBytes(), arena.heldBytes()) << "the records and the kernel differ";
    for (const Filled& block : live) ASSERT_TRUE(block.isWhole()) << "a trim has changed it";
  }
  while (!live.empty() && !HasFatalFailure()) drop(live.size() - 1);
  trimmed.trim(TrimRule::kAll);
  EXPECT_EQ(arena.heldBytes(), 0u);
  EXPECT_EQ(arena.bytesInUse(), 0u);
  EXPECT_EQ(trimmed.kernelBytes(), 0u);
  EXPECT_EQ(arena.largestFreeBlock(), kReserve) << "the absent reserve is one run again";
}

TEST(PageArenaTrim, RunsWhileThreadsAllocateAndFindsThemRoom) {
  Trimmed trimmed;
  trimmed.add(1, 16 * kMegabyte);
  constexpr int kThreads = 3;
  std::atomic<int> refused{0};
  std::atomic<int> damaged{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread);
      for (int turn = 0; turn < 1500; ++turn) {
        // All together always fit, whatever the trim does in between.
        const size_t bytes = kPageBytes << tests::pick(random, 0, 6);
        void* data = trimmed.arena.allocate(bytes);
        if (data == nullptr) {
          ++refused;
          continue;
        }
        const Filled block(data, bytes, static_cast<uint64_t>(thread) << 32 | turn);
        if (!block.isWhole()) ++damaged;
        trimmed.arena.dropReference(data);
      }
    });
  }
  std::thread trimmer([&] {
    while (!over) trimmed.trim(TrimRule::kAll);
  });
  for (std::thread& thread : threads) thread.join();
  over = true;
  trimmer.join();
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(trimmed.arena.bytesInUse(), 0u);
}

}  // namespace
}  // namespace isopool::ipc
