// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/page_arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/ipc/seed.h"

namespace isopool::ipc {
namespace {

constexpr size_t kMegabyte = 1 << 20;

void addSegment(PageArena& arena, uint32_t id, size_t bytes) {
  ASSERT_TRUE(arena.addSegment(base::SegmentId(id), createMemoryObject("test", bytes), bytes,
                               Prefault::kNo));
}

/// A field of this process's /proc/self/status that counts memory.
size_t statusBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t kibibytes = 0;
    if (word == field && status >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

/// Runs `run` in a forked child, whose memory can be counted or locked; returns its result.
bool holdsInChild(const std::function<bool()>& run) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run() ? 0 : 1);
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

bool isWholePages(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kPageBytes == 0;
}

// The bookkeeping of 64 GiB of pages takes 384 MiB. Writable memory counts
// under vm.overcommit_memory=2.
TEST(PageArena, HasMemoryForTheBooksOfItsSegmentsOnly) {
  EXPECT_TRUE(holdsInChild([] {
    const size_t before = statusBytes("VmData:");
    PageArena arena(size_t{64} << 30);
    addSegment(arena, 1, kMegabyte);
    return arena.allocate(kMegabyte) != nullptr && statusBytes("VmData:") < before + 16 * kMegabyte;
  }));
}

TEST(PageArena, HasNoMoreResidentInAProgramThatLocksAllItsMemory) {
  if (!holdsInChild([] { return ::mlockall(MCL_FUTURE) == 0; })) {
    GTEST_SKIP() << "this user may not lock memory";
  }
  EXPECT_TRUE(holdsInChild([] {
    ::mlockall(MCL_FUTURE);
    const size_t before = statusBytes("VmRSS:");
    PageArena arena(size_t{64} << 30);
    addSegment(arena, 1, kMegabyte);
    return arena.allocate(kMegabyte) != nullptr && statusBytes("VmRSS:") < before + 16 * kMegabyte;
  }));
}

/// The simplest bookkeeping of an arena: which pages of which segment are in use.
class ReferenceArena {
 public:
  void addSegment(uint32_t id, size_t bytes) { segments_[id].assign(bytes / kPageBytes, false); }
  /// False if one of the pages is in use already, or does not exist.
  bool take(const BlockLocation& block) { return change(block, /*taken=*/true); }
  bool giveBack(const BlockLocation& block) { return change(block, /*taken=*/false); }

  bool hasRoomFor(size_t bytes) const {
    const size_t wanted = roundUpToPages(bytes) / kPageBytes;
    for (const auto& [id, pages] : segments_) {
      size_t run = 0;
      for (const bool taken : pages) {
        run = taken ? 0 : run + 1;
        if (run >= wanted) return true;
      }
    }
    return false;
  }
  size_t bytesInUse() const {
    size_t pages = 0;
    for (const auto& [id, taken] : segments_) pages += std::count(taken.begin(), taken.end(), true);
    return pages * kPageBytes;
  }
  size_t bytes() const {
    size_t pages = 0;
    for (const auto& [id, taken] : segments_) pages += taken.size();
    return pages * kPageBytes;
  }
  const std::map<uint32_t, std::vector<bool>>& segments() const { return segments_; }

 private:
  bool change(const BlockLocation& block, bool taken) {
    const auto found = segments_.find(block.segment.value);
    if (found == segments_.end()) return false;
    std::vector<bool>& pages = found->second;
    const size_t first = block.offset / kPageBytes;
    const size_t last = first + block.bytes / kPageBytes;
    if (last > pages.size()) return false;
    for (size_t page = first; page < last; ++page) {
      if (pages[page] == taken) return false;
      pages[page] = taken;
    }
    return true;
  }

  std::map<uint32_t, std::vector<bool>> segments_;
};

/// A block in use, filled with a number of its own, so that an overlap is also visible in
/// the memory.
struct LiveBlock {
  std::byte* data;
  BlockLocation location;
  uint32_t references = 1;
  uint64_t mark;

  void fill() const {
    for (size_t at = 0; at < location.bytes; at += kPageBytes / 2) {
      std::memcpy(data + at, &mark, sizeof mark);
    }
  }
  bool isWhole() const {
    for (size_t at = 0; at < location.bytes; at += kPageBytes / 2) {
      if (std::memcmp(data + at, &mark, sizeof mark) != 0) return false;
    }
    return true;
  }
};

TEST(PageArena, MatchesAReferenceArenaUnderRandomUse) {
  auto random = tests::seededRandom();
  constexpr size_t kCapacity = 16 * kMegabyte;
  PageArena arena(kCapacity);
  ReferenceArena reference;
  std::vector<LiveBlock> live;
  uint32_t segments = 0;
  uint64_t marks = 0;
  size_t refusals = 0;
  const auto grow = [&] {
    const size_t bytes = tests::pick<size_t>(random, 1, 512) * kPageBytes;
    if (reference.bytes() + bytes > kCapacity) return;
    addSegment(arena, ++segments, bytes);
    reference.addSegment(segments, bytes);
  };
  const auto allocate = [&] {
    // Mostly small, sometimes half a segment.
    const size_t most = tests::pick(random, 0, 3) > 0 ? 8 * kPageBytes : kMegabyte;
    const size_t bytes = tests::pick<size_t>(random, 1, most);
    void* data = arena.allocate(bytes);
    ASSERT_EQ(data != nullptr, reference.hasRoomFor(bytes)) << bytes;
    if (data == nullptr) {
      ++refusals;
      return;
    }
    ASSERT_TRUE(isWholePages(data));
    const auto location = arena.locate(data);
    ASSERT_TRUE(location);
    ASSERT_EQ(location->bytes, roundUpToPages(bytes));
    ASSERT_TRUE(reference.take(*location)) << "overlaps, or lies outside its segment";
    ASSERT_EQ(arena.find(location->segment, location->offset), data);
    live.push_back({static_cast<std::byte*>(data), *location, 1, ++marks});
    live.back().fill();
  };
  const auto drop = [&](size_t index) {
    LiveBlock& block = live[index];
    ASSERT_EQ(arena.references(block.data), block.references);
    ASSERT_TRUE(block.isWhole()) << "another block overwrote it";
    arena.dropReference(block.data);
    if (--block.references > 0) return;
    ASSERT_TRUE(reference.giveBack(block.location));
    ASSERT_EQ(arena.find(block.location.segment, block.location.offset), nullptr);
    ASSERT_FALSE(arena.locate(block.data));
    ASSERT_FALSE(arena.referTo(block.data));
    live[index] = live.back();
    live.pop_back();
  };
  const auto anyIndex = [&] { return tests::pick<size_t>(random, 0, live.size() - 1); };

  grow();
  for (int step = 0; step < 20'000 && !HasFatalFailure(); ++step) {
    const int die = tests::pick(random, 0, 99);
    // Phases of filling and of emptying, so that the arena is sometimes full and
    // sometimes fragmented.
    const int allocations = step / 1000 % 2 == 0 ? 60 : 35;
    if (die < allocations) {
      allocate();
    } else if (die < 90) {
      if (!live.empty()) drop(anyIndex());
    } else if (die < 95) {
      if (live.empty()) continue;
      LiveBlock& block = live[anyIndex()];
      arena.addReference(block.data);
      ++block.references;
    } else if (die < 97) {
      if (live.empty()) continue;
      LiveBlock& block = live[anyIndex()];
      const auto found =
          arena.referTo(block.data + tests::pick<size_t>(random, 0, block.location.bytes - 1));
      ASSERT_TRUE(found);
      ASSERT_EQ(found->block, block.data);
      ASSERT_EQ(found->location.segment, block.location.segment);
      ASSERT_EQ(found->location.offset, block.location.offset);
      ++block.references;
    } else if (die < 99) {
      if (live.empty()) continue;
      const LiveBlock& block = live[anyIndex()];
      const size_t inside = tests::pick<size_t>(random, 0, block.location.bytes - 1);
      const auto found = arena.locate(block.data + inside);
      ASSERT_TRUE(found);
      ASSERT_EQ(found->segment, block.location.segment);
      ASSERT_EQ(found->offset, block.location.offset);
      ASSERT_EQ(found->bytes, block.location.bytes);
    } else {
      grow();
    }
    ASSERT_EQ(arena.bytesInUse(), reference.bytesInUse());
    ASSERT_EQ(arena.capacityBytes(), reference.bytes());
  }
  if (HasFatalFailure()) return;
  EXPECT_GT(segments, 3u);
  EXPECT_GT(refusals, 0u) << "it was never full";

  // All free pieces are merged again: each segment can be allocated as one block.
  while (!live.empty() && !HasFatalFailure()) drop(live.size() - 1);
  EXPECT_EQ(arena.bytesInUse(), 0u);
  std::vector<size_t> sizes;
  for (const auto& [id, pages] : reference.segments()) sizes.push_back(pages.size() * kPageBytes);
  std::sort(sizes.rbegin(), sizes.rend());
  for (const size_t bytes : sizes) EXPECT_NE(arena.allocate(bytes), nullptr) << bytes;
  EXPECT_EQ(arena.allocate(1), nullptr);
}

// The record of a free run has other figures in the place of references.
TEST(PageArena, AFreeBlockHasNoReferences) {
  PageArena arena(kMegabyte);
  addSegment(arena, 1, kMegabyte);
  void* block = arena.allocate(kPageBytes);
  EXPECT_EQ(arena.references(block), 1u);
  arena.dropReference(block);
  EXPECT_EQ(arena.references(block), 0u);
}

TEST(PageArena, WithoutSegmentsHasNothing) {
  PageArena arena(kMegabyte);
  EXPECT_EQ(arena.allocate(1), nullptr);
  EXPECT_EQ(arena.capacityBytes(), 0u);
}

TEST(PageArena, NothingAndMoreThanEverythingAreNotToBeHad) {
  PageArena arena(kMegabyte);
  addSegment(arena, 1, kMegabyte);
  EXPECT_EQ(arena.allocate(0), nullptr);
  EXPECT_EQ(arena.allocate(kMegabyte + 1), nullptr);
  EXPECT_EQ(arena.allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(arena.allocate(SIZE_MAX - kPageBytes + 1), nullptr);
  EXPECT_NE(arena.allocate(kMegabyte), nullptr);
}

TEST(PageArena, NoBlockReachesFromOneSegmentIntoTheNext) {
  PageArena arena(kMegabyte);
  addSegment(arena, 1, 4 * kPageBytes);
  addSegment(arena, 2, 4 * kPageBytes);
  EXPECT_EQ(arena.allocate(5 * kPageBytes), nullptr);
  void* first = arena.allocate(4 * kPageBytes);
  void* second = arena.allocate(4 * kPageBytes);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  arena.dropReference(first);
  arena.dropReference(second);
  EXPECT_EQ(arena.allocate(5 * kPageBytes), nullptr) << "free pieces of two segments were merged";
}

TEST(PageArena, GrowsBySegmentsUntilItsReservationIsUsedUp) {
  PageArena arena(2 * kMegabyte);
  addSegment(arena, 7, kMegabyte);
  ASSERT_NE(arena.allocate(kMegabyte), nullptr);
  ASSERT_EQ(arena.allocate(1), nullptr);
  addSegment(arena, 9, kMegabyte);
  void* block = arena.allocate(kMegabyte);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(arena.locate(block)->segment, base::SegmentId(9));
  EXPECT_FALSE(arena.addSegment(base::SegmentId(10), createMemoryObject("test", kPageBytes),
                                kPageBytes, Prefault::kNo));
  EXPECT_EQ(arena.capacityBytes(), 2 * kMegabyte);
}

TEST(PageArena, AnAddressOfNoBlockIsRefused) {
  PageArena arena(kMegabyte);
  addSegment(arena, 1, 8 * kPageBytes);
  auto* block = static_cast<std::byte*>(arena.allocate(2 * kPageBytes));
  const void* begin = arena.addressSpace().data();
  const void* end = arena.addressSpace().data() + arena.addressSpace().size();
  int local = 0;
  const auto heap = std::make_unique<int>(0);
  for (const void* foreign :
       {static_cast<const void*>(nullptr), static_cast<const void*>(&local),
        static_cast<const void*>(heap.get()), static_cast<const void*>(block + 2 * kPageBytes),
        begin, end, static_cast<const void*>(static_cast<const std::byte*>(begin) - 1),
        static_cast<const void*>(static_cast<const std::byte*>(end) - 1)}) {
    EXPECT_FALSE(arena.locate(foreign)) << foreign;
  }
  EXPECT_FALSE(arena.contains(end));
}

TEST(PageArena, APlaceOfNoBlockIsRefused) {
  PageArena arena(kMegabyte);
  addSegment(arena, 1, 8 * kPageBytes);
  void* block = arena.allocate(2 * kPageBytes);
  ASSERT_EQ(arena.find(base::SegmentId(1), 0), block);
  EXPECT_EQ(arena.find(base::SegmentId(2), 0), nullptr);
  EXPECT_EQ(arena.find(base::SegmentId(0), 0), nullptr);
  EXPECT_EQ(arena.find(base::SegmentId(1), kPageBytes), nullptr) << "inside a block";
  EXPECT_EQ(arena.find(base::SegmentId(1), 2 * kPageBytes), nullptr) << "free";
  for (const uint64_t offset : {uint64_t{1}, uint64_t{8 * kPageBytes}, UINT64_MAX,
                                UINT64_MAX / kPageBytes * kPageBytes, uint64_t{1} << 44}) {
    EXPECT_EQ(arena.find(base::SegmentId(1), offset), nullptr) << offset;
  }
}

TEST(PageArena, ABlockIsFreeWithItsLastReference) {
  PageArena arena(kMegabyte);
  addSegment(arena, 1, kPageBytes);
  void* block = arena.allocate(kPageBytes);
  arena.addReference(block);
  arena.addReference(block);
  arena.dropReference(block);
  arena.dropReference(block);
  EXPECT_EQ(arena.allocate(1), nullptr);
  arena.dropReference(block);
  EXPECT_EQ(arena.allocate(1), block);
}

TEST(PageArena, APrivatisedBlockGetsItsSharedPagesBack) {
  PageArena arena(kMegabyte);
  base::Fd object = createMemoryObject("test", 8 * kPageBytes);
  const Mapping other = mapShared(object, 0, 8 * kPageBytes, Access::kReadWrite, Prefault::kNo);
  ASSERT_TRUE(
      arena.addSegment(base::SegmentId(1), std::move(object), 8 * kPageBytes, Prefault::kYes));
  arena.allocate(kPageBytes);
  auto* block = static_cast<char*>(arena.allocate(2 * kPageBytes));
  const auto offset = arena.locate(block)->offset;
  ASSERT_TRUE(privatisePages(block, 2 * kPageBytes));
  std::strcpy(block, "private");
  EXPECT_STREQ(reinterpret_cast<char*>(other.data() + offset), "");
  arena.restoreSharedPages(block);
  EXPECT_STREQ(block, "");
  std::strcpy(block, "shared");
  EXPECT_STREQ(reinterpret_cast<char*>(other.data() + offset), "shared");
}

TEST(PageArena, CutOffItsSegmentsKeepsItsLiveBlocksForItself) {
  PageArena arena(kMegabyte);
  base::Fd object = createMemoryObject("test", 8 * kPageBytes);
  const Mapping other = mapShared(object, 0, 8 * kPageBytes, Access::kReadWrite, Prefault::kNo);
  ASSERT_TRUE(
      arena.addSegment(base::SegmentId(1), std::move(object), 8 * kPageBytes, Prefault::kYes));
  void* dropped = arena.allocate(kPageBytes);
  auto* block = static_cast<char*>(arena.allocate(2 * kPageBytes));
  const auto offset = arena.locate(block)->offset;
  std::strcpy(block, "kept");
  arena.dropReference(dropped);
  arena.leaveSegments();
  std::strcpy(reinterpret_cast<char*>(other.data() + offset), "others");
  EXPECT_STREQ(block, "kept");
  arena.dropReference(block);
  EXPECT_EQ(arena.bytesInUse(), 0u);
}

TEST(PageArena, SeveralThreadsMayUseItWhileItGrows) {
  PageArena arena(64 * kMegabyte);
  addSegment(arena, 1, kMegabyte);
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  std::atomic<int> damaged{0};
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread);
      for (int turn = 0; turn < 5000; ++turn) {
        const size_t pages = tests::pick<size_t>(random, 1, 32);
        auto* block = static_cast<std::byte*>(arena.allocate(pages * kPageBytes));
        if (block == nullptr) continue;
        LiveBlock live{block, *arena.locate(block), 1,
                       static_cast<uint64_t>(thread) << 32 | static_cast<uint64_t>(turn)};
        live.fill();
        if (!live.isWhole()) ++damaged;
        arena.dropReference(block);
      }
    });
  }
  for (uint32_t id = 2; id < 32; ++id) addSegment(arena, id, kMegabyte);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(arena.bytesInUse(), 0u);
  for (uint32_t id = 1; id < 32; ++id) EXPECT_NE(arena.allocate(kMegabyte), nullptr) << id;
}

}  // namespace
}  // namespace isopool::ipc
