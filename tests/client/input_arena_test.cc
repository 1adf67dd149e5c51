// SPDX-License-Identifier: BSD-3-Clause
// The arena for inputs by itself, with a limit of 64 MiB: what it finds room for, what it gives
// back to the system, and what it says when it can't.
#include "client/transport/input_arena.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "isopool/observation.h"
#include "isopool/shared_memory.h"
#include "tests/ipc/seed.h"

namespace isopool::tests {
namespace {

using client::InputArena;
using client::NoBlock;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kLimit = 64 * kMiB;
constexpr size_t kReserve = 8 * kMiB;
// Before the arena exists.
const bool limitIsSet = ::setenv("ISOPOOL_INPUT_ARENA_LIMIT", "64MiB", 1) == 0;

InputArena& arena() { return InputArena::instance(); }

/// What the kernel holds for the memory objects that this process has open, each counted once.
size_t kernelBytes() {
  std::map<ino_t, size_t> objects;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.find("memfd:isopool:input") == std::string::npos) continue;
    struct stat status {};
    if (::stat(entry.path().c_str(), &status) == 0) {
      objects[status.st_ino] = static_cast<size_t>(status.st_blocks) * 512;
    }
  }
  size_t bytes = 0;
  for (const auto& [inode, held] : objects) bytes += held;
  return bytes;
}

/// A connection to a supervisor as the arena sees it: it answers when the test wants it.
class Audience final : public client::SegmentAudience {
 public:
  Audience() { arena().addAudience(*this); }
  ~Audience() override { arena().removeAudience(*this); }
  void segmentAdded(base::SegmentId id, const base::Fd&, size_t) override {
    EXPECT_TRUE(known.insert(id.value).second) << "told twice of segment " << id.value;
    EXPECT_EQ(retired.count(id.value), 0u) << "the number is not free yet: " << id.value;
  }
  void segmentRetired(base::SegmentId id) override {
    EXPECT_EQ(known.erase(id.value), 1u) << "not told of segment " << id.value;
    retired.insert(id.value);
  }
  void trimIsWanted() override { ++wanted; }
  uint64_t memoryLimit() const override { return limit; }
  void trimIsDue() noexcept override { ++due; }

  void releaseAll() {
    for (const uint32_t id : std::exchange(retired, {})) {
      arena().segmentReleased(*this, base::SegmentId(id));
    }
  }

  std::set<uint32_t> known;
  std::set<uint32_t> retired;
  uint64_t limit = 0;
  int wanted = 0;
  int due = 0;
};

/// All tests begin and end with an arena that holds nothing.
class InputArenaMemory : public testing::Test {
 protected:
  InputArenaMemory() { arena().trim(); }
  ~InputArenaMemory() override {
    EXPECT_EQ(arena().bytesInUse(), 0u);
    arena().trim();
    EXPECT_EQ(arena().heldBytes(), 0u);
  }
  /// All that is left of the steps of one idle trim.
  static std::optional<std::chrono::milliseconds> idleTrim() {
    for (;;) {
      const auto again = arena().trimIdle();
      if (!again || again->count() > 0) return again;
    }
  }
  /// The first trim may have begun before.
  static void idle() {
    for (int trims = 0; trims < 3; ++trims) idleTrim();
  }
};

TEST_F(InputArenaMemory, OneTensorAtATimeMayHaveAnySizeWithinTheLimit) {
  const Audience audience;  // without one, free segments go back at once
  for (const size_t size : {20, 30, 40, 50, 60, 64, 1, 50, 33, 64}) {
    NoBlock why;
    void* block = arena().allocateBlock(size * kMiB, why);
    ASSERT_NE(block, nullptr) << size << " MiB: " << why.text;
    EXPECT_LE(kernelBytes(), kLimit);
    arena().freeBlock(block);
  }
}

TEST_F(InputArenaMemory, HasRoomWheneverTheRequestAndWhatIsInUseAreWithinTheLimit) {
  auto random = seededRandom();
  Audience audience;
  struct Live {
    uint64_t* data;
    size_t bytes;
    uint64_t mark;
    bool isWhole() const { return data[0] == mark && data[bytes / sizeof mark - 1] == mark; }
  };
  std::vector<Live> live;
  size_t inUse = 0;  // the model: the least memory that holds all
  uint64_t marks = 0;
  int refusals = 0;
  const auto drop = [&](size_t index) {
    ASSERT_TRUE(live[index].isWhole()) << "another block or a trim has changed it";
    inUse -= live[index].bytes;
    arena().freeBlock(live[index].data);
    live[index] = live.back();
    live.pop_back();
  };
  for (int step = 0; step < 3000 && !HasFatalFailure(); ++step) {
    const int die = pick(random, 0, 99);
    if (die < 52) {
      const size_t bytes =
          ipc::roundUpToPages(pick<size_t>(random, 1, size_t{1} << pick(random, 8, 26)));
      NoBlock why;
      auto* block = static_cast<uint64_t*>(arena().allocateBlock(bytes, why));
      ASSERT_EQ(block != nullptr, inUse + bytes <= kLimit)
          << bytes << " bytes beside " << inUse << " in use: " << why.text;
      if (block == nullptr) {
        ++refusals;
        ASSERT_NE(why.text.find(std::to_string(inUse) + " are in use"), std::string::npos)
            << why.text;
        continue;
      }
      live.push_back({block, bytes, ++marks});
      block[0] = block[bytes / sizeof marks - 1] = marks;
      inUse += bytes;
    } else if (die < 96) {
      if (!live.empty()) drop(pick<size_t>(random, 0, live.size() - 1));
    } else if (die < 98) {
      arena().trimIdle();
    } else {
      audience.releaseAll();
    }
    ASSERT_EQ(arena().bytesInUse(), inUse);
    ASSERT_LE(arena().heldBytes(), kLimit);
    if (step % 100 != 99) continue;
    audience.releaseAll();
    idle();
    ASSERT_LE(arena().heldBytes(), inUse + kReserve) << "of what is free";
    ASSERT_EQ(kernelBytes(), arena().heldBytes()) << "the records and the kernel differ";
  }
  EXPECT_GT(refusals, 10) << "it was never full";
  while (!live.empty() && !HasFatalFailure()) drop(live.size() - 1);
}

TEST_F(InputArenaMemory, ANumberIsUsedAgainWhenEveryAudienceHasReleasedIt) {
  Audience first;
  Audience second;
  void* block = arena().allocateBlock(10 * kMiB);
  const uint32_t number = arena().locate(block)->segment.value;
  ASSERT_EQ(first.known.count(number) + second.known.count(number), 2u);
  arena().freeBlock(block);
  arena().trim();
  ASSERT_EQ(first.retired.count(number) + second.retired.count(number), 2u);
  const auto next = [&] {
    void* other = arena().allocateBlock(10 * kMiB);
    const uint32_t its = arena().locate(other)->segment.value;
    arena().freeBlock(other);
    arena().trim();
    return its;
  };
  EXPECT_NE(next(), number);
  first.releaseAll();
  EXPECT_NE(next(), number) << "the other audience has not released it";
  second.releaseAll();
  first.releaseAll();
  EXPECT_EQ(next(), number);
  first.releaseAll();
  second.releaseAll();
}

TEST_F(InputArenaMemory, ANumberIsFreeWhenTheAudienceThatHasItLeaves) {
  uint32_t number = 0;
  {
    Audience audience;
    void* block = arena().allocateBlock(10 * kMiB);
    number = arena().locate(block)->segment.value;
    arena().freeBlock(block);
    arena().trim();
    EXPECT_EQ(audience.retired, std::set<uint32_t>{number});
  }
  void* block = arena().allocateBlock(10 * kMiB);
  EXPECT_EQ(arena().locate(block)->segment.value, number);
  arena().freeBlock(block);
}

TEST_F(InputArenaMemory, ABlockWithAnotherReferenceKeepsItsMemory) {
  void* block = arena().allocateBlock(10 * kMiB);
  std::memset(block, 7, 10 * kMiB);
  ASSERT_TRUE(arena().referTo(block));  // as a lease has one
  arena().freeBlock(block);
  arena().trim();
  idle();
  EXPECT_EQ(static_cast<const char*>(block)[10 * kMiB - 1], 7);
  arena().dropReference(block);
}

TEST_F(InputArenaMemory, AnAudienceIsNotifiedOnceUntilNothingMoreCanBecomeIdle) {
  Audience audience;
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(arena().allocateBlock(6 * kMiB));
  EXPECT_EQ(audience.due, 0);
  for (void* block : blocks) arena().freeBlock(block);
  EXPECT_EQ(audience.due, 1);
  EXPECT_EQ(idleTrim(), InputArena::kIdleTime);
  EXPECT_EQ(arena().heldBytes(), 24 * kMiB) << "not free for the time";
  EXPECT_EQ(idleTrim(), std::nullopt);
  EXPECT_LE(arena().heldBytes(), kReserve);
  arena().freeBlock(arena().allocateBlock(10 * kMiB));
  EXPECT_EQ(audience.due, 2);
}

TEST_F(InputArenaMemory, WithoutAnAudienceAFreeSegmentGoesBackAtOnce) {
  arena().freeBlock(arena().allocateBlock(20 * kMiB));
  EXPECT_EQ(arena().heldBytes(), 0u);
  EXPECT_EQ(kernelBytes(), 0u);
}

TEST_F(InputArenaMemory, WhatTheLastAudienceLeavesGoesBack) {
  {
    Audience audience;
    arena().freeBlock(arena().allocateBlock(20 * kMiB));
    EXPECT_GE(arena().heldBytes(), 20 * kMiB);
  }
  EXPECT_EQ(arena().heldBytes(), 0u);
}

TEST_F(InputArenaMemory, TrimAsksTheAudiencesForTheWorkersMemoryToo) {
  Audience audience;
  const auto begun = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < begun + std::chrono::seconds(1)) trimSharedMemory();
  EXPECT_GE(audience.wanted, 3);
  EXPECT_LE(audience.wanted, 6) << "five times a second at most";
}

TEST_F(InputArenaMemory, SegmentsThatNobodyReleasesDoNotPileUp) {
  Audience audience;
  for (int i = 0; i < 200; ++i) {
    arena().freeBlock(arena().allocateBlock(3 * kMiB));
    arena().trim();
  }
  EXPECT_LE(audience.retired.size(), 65u);
  audience.releaseAll();
}

TEST_F(InputArenaMemory, BlocksAreUsedAgainWithoutNewMemory) {
  Audience audience;
  void* first = arena().allocateBlock(20 * kMiB);
  arena().freeBlock(first);
  for (int i = 0; i < 100; ++i) {
    void* block = arena().allocateBlock(19 * kMiB);
    EXPECT_EQ(block, first);
    arena().freeBlock(block);
  }
  EXPECT_LE(audience.known.size(), 2u) << "the reserve, and its own segment";
}

TEST_F(InputArenaMemory, AboveASupervisorsLimitFreeMemoryGoesBackFirst) {
  Audience audience;
  audience.limit = 32 * kMiB;
  for (const size_t size : {10, 14, 20, 24, 30}) {
    void* block = arena().allocateBlock(size * kMiB);
    ASSERT_NE(block, nullptr);
    EXPECT_LE(arena().heldBytes(), audience.limit) << size;
    arena().freeBlock(block);
  }
}

// ---- true causes -------------------------------------------------------------------------------

TEST_F(InputArenaMemory, AFullArenaSaysWhatIsInUseAndHeld) {
  void* held = arena().allocateBlock(60 * kMiB);
  NoBlock why;
  EXPECT_EQ(arena().allocateBlock(5 * kMiB, why), nullptr);
  EXPECT_TRUE(why.waitingHelps);
  for (const std::string& part :
       {std::to_string(kLimit), std::to_string(60 * kMiB) + " are in use",
        std::to_string(arena().heldBytes()) + " are held", std::string("largest free block"),
        std::string("release tensors"), std::string("ISOPOOL_INPUT_ARENA_LIMIT")}) {
    EXPECT_NE(why.text.find(part), std::string::npos) << part << ": " << why.text;
  }
  EXPECT_EQ(arena().allocateBlock(kLimit + 1, why), nullptr);
  EXPECT_FALSE(why.waitingHelps) << "larger than the limit";
  arena().freeBlock(held);
}

TEST_F(InputArenaMemory, WithoutAFreeDescriptorThatIsTheCause) {
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  const int lowest = ::dup(0);
  const rlimit none{static_cast<rlim_t>(lowest), former.rlim_max};
  ::close(lowest);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  NoBlock why;
  void* block = arena().allocateBlock(10 * kMiB, why);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &former), 0);
  EXPECT_EQ(block, nullptr);
  EXPECT_FALSE(why.waitingHelps);
  for (const char* part : {"memfd_create", "Too many open files", "ulimit -n"}) {
    EXPECT_NE(why.text.find(part), std::string::npos) << part << ": " << why.text;
  }
  EXPECT_EQ(why.text.find("release tensors"), std::string::npos) << why.text;
  void* later = arena().allocateBlock(10 * kMiB);
  EXPECT_NE(later, nullptr) << "a failure leaves nothing behind";
  arena().freeBlock(later);
}

/// Makes memfd_create fail with this error on the calling thread, for ever.
bool refuseMemoryObjects(uint32_t errorNumber) {
  std::array<sock_filter, 4> program{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errorNumber),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_F(InputArenaMemory, WhereMemoryObjectsAreRefusedThatIsTheCauseAndTensorsAreOrdinary) {
  arena().freeBlock(arena().allocateBlock(10 * kMiB));  // a success: the next failure is logged
  static std::string log;
  log.clear();
  setLogger([](LogLevel, std::string_view text) { log.append(text).append("\n"); });
  for (const uint32_t error : {EPERM, ENOSYS, ENFILE, ENOMEM}) {
    std::thread([&] {
      ASSERT_TRUE(refuseMemoryObjects(error));
      NoBlock why;
      EXPECT_EQ(arena().allocateBlock(10 * kMiB, why), nullptr);
      EXPECT_FALSE(why.waitingHelps);
      EXPECT_NE(why.text.find("memfd_create"), std::string::npos) << why.text;
      EXPECT_NE(why.text.find(std::strerror(static_cast<int>(error))), std::string::npos)
          << why.text;
      EXPECT_EQ(why.text.find("release tensors"), std::string::npos) << why.text;
      const at::Tensor x = empty({10 << 20}, at::kByte);
      EXPECT_FALSE(isShared(x));
      EXPECT_EQ(x.fill_(1).sum().item<int64_t>(), 10 << 20);
    }).join();
  }
  setLogger(nullptr);
  EXPECT_NE(log.find("memfd_create"), std::string::npos) << log;
  EXPECT_EQ(log.find("memfd_create"), log.rfind("memfd_create")) << "once: " << log;
}

// ---- resizing ----------------------------------------------------------------------------------

TEST_F(InputArenaMemory, TensorsOfEmptyCanBeResizedAndKeepTheirData) {
  for (const int64_t elements : {5, 1000, 3'000'000}) {
    at::Tensor x = empty({elements}).fill_(3);
    ASSERT_TRUE(isShared(x));
    const at::Tensor alias = x.view({-1});
    x.resize_({elements / 2});
    EXPECT_TRUE(isShared(x)) << "a smaller one stays where it is";
    x.resize_({2 * elements});
    EXPECT_EQ(x.numel(), 2 * elements);
    EXPECT_TRUE(x.narrow(0, 0, elements).eq(3).all().item<bool>()) << elements;
    x.fill_(4);
    EXPECT_TRUE(alias.eq(4).all().item<bool>()) << "still one storage";

    at::Tensor out = empty({elements});
    at::add_out(out, at::ones({4 * elements}), 1);
    EXPECT_TRUE(out.eq(2).all().item<bool>());
    EXPECT_EQ(out.numel(), 4 * elements);

    at::Tensor other = empty({elements}).fill_(1);
    other.set_(at::full({elements}, 9.0f));
    EXPECT_TRUE(other.eq(9).all().item<bool>());
  }
}

TEST_F(InputArenaMemory, ABlockThatIsLentOutlivesTheResizeOfItsTensor) {
  at::Tensor x = empty({3'000'000}).fill_(3);
  auto* const block = static_cast<float*>(x.data_ptr());
  ASSERT_TRUE(arena().referTo(block));  // as a lease has one
  x.resize_({6'000'000}).fill_(4);
  EXPECT_NE(x.data_ptr(), block);
  at::Tensor next = empty({3'000'000}).fill_(5);
  EXPECT_NE(next.data_ptr(), block) << "a worker may still use it";
  EXPECT_EQ(block[2'999'999], 3);
  arena().dropReference(block);
}

}  // namespace
}  // namespace isopool::tests
