// SPDX-License-Identifier: BSD-3-Clause
// A pool's life as a program sees it, on plain workers, with each call of libisopool failing in
// turn until all pass. Also a growing arena, and a temporary lack of descriptors.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "client/transport/input_arena.h"
#include "tests/client/harness.h"
#include "tests/fault_injection/documented_error.h"
#include "tests/fault_injection/failing_calls.h"
#include "tests/fault_injection/held.h"

namespace isopool::tests {
namespace {

constexpr uint32_t kNoKind = ~0u;
constexpr uint64_t kMost = 100'000;
constexpr std::chrono::seconds kHang(20);

/// The file in which plain workers record their calls.
const std::string& effectsFile() {
  static const std::string path = [] {
    const std::string file = testFolder() / "effects";
    std::ofstream(file).flush();
    return file;
  }();
  return path;
}

/// Calls the plain worker's only object and checks its answers: see testing/plain_calls.h.
class Life {
 public:
  /// From the manager's construction to its end.
  void live() {
    InterpreterManager manager(1);
    step_ = manager.loadPackage(packagePath()).loadPickle("model", "step.pkl");
    expectAnswer(at::full({8}, 5, at::kLong));                   // travels in the call
    expectAnswer(at::full({10'000}, 6, at::kLong));              // is copied
    expectAnswer(isopool::empty({10'000}, at::kLong).fill_(7));  // lies in shared memory
    expectOneOutcome(at::full({10'000}, 8, at::kLong));
    expectAnswersOfAll();
    letObjsAndAStreamGo(manager);
    loseTheWorker(manager);
    step_ = {};
  }

 private:
  static constexpr int64_t kNonce = 11;

  std::vector<at::IValue> arguments(const at::Tensor& x) {
    return {kNonce, effectsFile(), "none", 0, x};
  }

  static void expectRight(const at::IValue& answer, const at::Tensor& x) {
    EXPECT_TRUE(answer.toTensor().equal(x * 3 + kNonce));
  }

  void expectAnswer(const at::Tensor& x) { expectRight(step_(arguments(x)), x); }

  void expectOneOutcome(const at::Tensor& x) {
    std::atomic<int> outcomes{0};
    PendingCall pending;
    try {
      pending = step_.callAsync(arguments(x), [&](const Outcome&) { ++outcomes; });
    } catch (...) {
      EXPECT_EQ(outcomes, 0) << "an exception and an outcome";
      throw;
    }
    pending.wait();
    EXPECT_EQ(outcomes, 1);
  }

  void expectAnswersOfAll() {
    const at::Tensor x = at::full({8}, 4, at::kLong);
    for (const at::IValue& answer : step_.callOnAll(arguments(x))) expectRight(answer, x);
  }

  void letObjsAndAStreamGo(InterpreterManager& manager) {
    InterpreterSession session = manager.acquireOne();
    const Obj some[] = {session.global("math", "pi"), session.global("math", "e")};
    const Obj last = session.global("math", "tau");
    const ResultStream stream = step_.stream(arguments(at::ones({8}, at::kLong)));
  }

  void loseTheWorker(InterpreterManager& manager) {
    ::kill(manager.allInstances()[0].processId().value(), SIGKILL);
    const auto late = std::chrono::steady_clock::now() + kHang;
    for (;;) {
      try {
        return expectAnswer(at::full({8}, 9, at::kLong));
      } catch (const WorkerLost&) {
        if (std::chrono::steady_clock::now() > late) throw;
      }
    }
  }

  ReplicatedObj step_;
};

std::string liveOnce() {
  return documentedErrorOf([] { Life().live(); });
}

class EachCallOfAPool : public testing::TestWithParam<uint32_t> {};

TEST_P(EachCallOfAPool, ThatFailsEndsInADocumentedErrorOrInAnAnswer) {
  const ScopedVariable plain("ISOPOOL_WORKER=" PLAIN_WORKER);
  const ScopedVariable silent("ISOPOOL_LOG=off");
  const std::string_view kind = kCallKindNames[GetParam()];
  // What the process creates once and keeps (the input arena, memory of threads) is not a leak.
  static const std::string first = liveOnce();
  ASSERT_EQ(first, "");
  uint64_t failed = 0;
  uint64_t survived = 0;
  uint64_t n = 1;
  for (bool more = true; more; ++n) {
    const ProcessMark mark;
    const ScopedVariable own(mark.variable());
    const Held before = heldNow();
    const auto began = std::chrono::steady_clock::now();
    isopoolFailNthCall(GetParam(), n);
    const std::string error = liveOnce();
    const bool happened = isopoolCallsCounted() >= n;
    isopoolFailNthCall(kNoKind, 0);
    const std::string which = std::string(kind) + " " + std::to_string(n) +
                              " failed: " + (error.empty() ? "no error" : error);
    EXPECT_LT(std::chrono::steady_clock::now() - began, kHang) << which;
    EXPECT_TRUE(mark.waitUntilNoneIsLeft(milliseconds(5000))) << which;
    EXPECT_TRUE(waitUntil([&] { return heldNow() == before; }))
        << which << "; held " << heldNow() << ", before " << before;
    EXPECT_TRUE(happened || error.empty()) << which;
    more = happened && n < kMost;
    if (happened) ++failed;
    if (happened && error.empty()) ++survived;
  }
  std::printf("%s: %llu failed, of which %llu were survived; the last was before the %llu-th\n",
              std::string(kind).c_str(), static_cast<unsigned long long>(failed),
              static_cast<unsigned long long>(survived), static_cast<unsigned long long>(n - 1));
}

// ---- The arena for inputs ----------------------------------------------------------------------

// More than half of a segment, so that each block takes a segment of its own.
constexpr int64_t kNumbersOfASegment = (2 << 20) / 8 + 512;

TEST(FailedAllocationOfAGrowingArena, LeavesNoSegmentUnknownToWorkers) {
  const ScopedVariable plain("ISOPOOL_WORKER=" PLAIN_WORKER);
  InterpreterManager manager(1);
  const ReplicatedObj step = manager.loadPackage(packagePath()).loadPickle("model", "step.pkl");
  const auto expectAnswer = [&](const at::Tensor& x) {
    const at::IValue answer = step({11, effectsFile(), "none", 0, x.fill_(2)});
    EXPECT_TRUE(answer.toTensor().eq(2 * 3 + 11).all().item<bool>());
  };
  const auto arena = [] { return isopool::empty({kNumbersOfASegment}, at::kLong); };
  expectAnswer(arena());
  std::vector<at::Tensor> held;
  uint64_t n = 1;
  for (bool more = true; more; ++n) {
    at::Tensor x;
    isopoolFailNthCall(static_cast<uint32_t>(CallKind::kAllocation), n);
    const std::string error = documentedErrorOf([&] { x = arena(); });
    more = isopoolCallsCounted() >= n;
    isopoolFailNthCall(kNoKind, 0);
    SCOPED_TRACE("allocation " + std::to_string(n) + " failed: " + error);
    if (x.defined()) held.push_back(x);
    // If the failed allocation left a segment, the next block uses it.
    held.push_back(arena());
    EXPECT_TRUE(isShared(held.back()));
    EXPECT_EQ(documentedErrorOf([&] { expectAnswer(held.back()); }), "");
    if (!x.defined()) continue;
    EXPECT_EQ(documentedErrorOf([&] { expectAnswer(x); }), "");
  }
  EXPECT_GT(n, 5u);
}

/// Is notified of segments; the first `failures` notifications throw bad_alloc.
struct Listener final : client::SegmentAudience {
  void segmentRetired(base::SegmentId) override {}
  void trimIsWanted() override {}
  uint64_t memoryLimit() const override { return 0; }
  void trimIsDue() noexcept override {}
  void segmentAdded(base::SegmentId id, const base::Fd&, size_t) override {
    if (--failures >= 0) throw std::bad_alloc();
    last = id.value;
    ++told;
  }
  int failures = 0;
  int told = 0;
  uint32_t last = 0;
};

/// Blocks of the program's own arena. Each call of grow() takes a new segment.
class GrowingArena : public testing::Test {
 protected:
  // Uses up the free memory of the arena first.
  GrowingArena() {
    const uint64_t before = arena_.heldBytes();
    while (arena_.heldBytes() == before) grow();
  }
  ~GrowingArena() override {
    for (void* block : blocks_) arena_.freeBlock(block);
  }
  void* grow() {
    void* const block = arena_.allocateBlock(kNumbersOfASegment * 8);
    if (block != nullptr) blocks_.push_back(block);
    return block;
  }

  client::InputArena& arena_ = client::InputArena::instance();

 private:
  std::vector<void*> blocks_;
};

TEST_F(GrowingArena, DoesNotNotifyAnObserverWhoseAdditionFailed) {
  Listener listener;
  listener.failures = 1;
  EXPECT_THROW(arena_.addAudience(listener), std::bad_alloc);
  listener.told = 0;
  EXPECT_NE(grow(), nullptr);
  EXPECT_EQ(listener.told, 0);
  arena_.removeAudience(listener);
}

TEST_F(GrowingArena, GivesOutABlockOnceEveryObserverKnowsItsSegment) {
  Listener first;
  Listener second;
  arena_.addAudience(first);
  arena_.addAudience(second);
  const int known = second.told;
  second.failures = 1;
  EXPECT_EQ(grow(), nullptr);
  void* const block = grow();
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(second.told, known + 1);
  EXPECT_EQ(first.told, known + 1) << "once each";
  EXPECT_EQ(second.last, arena_.locate(block)->segment.value);
  arena_.removeAudience(first);
  arena_.removeAudience(second);
}

// ---- Descriptors -------------------------------------------------------------------------------

/// A pool of a program that has temporarily no descriptor left.
class UsedUpDescriptors : public testing::Test {
 protected:
  UsedUpDescriptors() {
    setLogger([this](LogLevel, std::string_view text) {
      if (text.find("ulimit -n") != std::string_view::npos) ++warnings_;
    });
    ::getrlimit(RLIMIT_NOFILE, &former_);
    supervisor_ = ProcessTree(mark_).supervisor();
  }
  ~UsedUpDescriptors() override {
    ::setrlimit(RLIMIT_NOFILE, &former_);
    setLogger({});
  }

  // Open descriptors stay open.
  void useUp() {
    rlimit none = former_;
    none.rlim_cur = 3;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  void killTheWorker() { ::kill(manager_.allInstances()[0].processId().value(), SIGKILL); }
  int warnings() const { return warnings_; }
  std::string ask() {
    return documentedErrorOf([&] {
      const at::Tensor x = at::full({8}, 5, at::kLong);
      const at::IValue answer = step_({11, effectsFile(), "none", 0, x});
      EXPECT_TRUE(answer.toTensor().equal(x * 3 + 11));
    });
  }
  // True when the client has logged that it has no descriptors for the new worker's introduction.
  bool awaitIntroduction() {
    return waitUntil([&] { return warnings_ > 0; });
  }

  pid_t supervisor_ = -1;
  rlimit former_{};

 private:
  const ProcessMark mark_;
  const ScopedVariable own_{mark_.variable()};
  const ScopedVariable plain_{"ISOPOOL_WORKER=" PLAIN_WORKER};
  std::atomic<int> warnings_{0};
  InterpreterManager manager_{1};
  ReplicatedObj step_ = manager_.loadPackage(packagePath()).loadPickle("model", "step.pkl");
};

TEST_F(UsedUpDescriptors, AReplacementIsTakenOverOnceThereAreSomeAgain) {
  EXPECT_EQ(ask(), "");
  useUp();
  killTheWorker();
  EXPECT_TRUE(awaitIntroduction());
  ::setrlimit(RLIMIT_NOFILE, &former_);
  // More deaths than there are spare workers.
  for (int i = 0; i < 3; ++i) {
    std::string outcome;
    EXPECT_TRUE(waitUntil([&] { return (outcome = ask()).empty(); })) << outcome;
    if (!outcome.empty()) break;
    killTheWorker();
  }
  EXPECT_EQ(warnings(), 1);
}

TEST_F(UsedUpDescriptors, TheSupervisorsDeathIsSeen) {
  useUp();
  killTheWorker();
  EXPECT_TRUE(awaitIntroduction());
  ::kill(supervisor_, SIGKILL);
  std::string outcome;
  EXPECT_TRUE(waitUntil([&] {
    outcome = ask();
    return outcome.find("the supervisor is gone") != std::string::npos;
  })) << outcome;
}

INSTANTIATE_TEST_SUITE_P(Kinds, EachCallOfAPool,
                         testing::Range(0u, static_cast<uint32_t>(CallKind::kCount)),
                         [](const auto& test) { return std::string(kCallKindNames[test.param]); });

}  // namespace
}  // namespace isopool::tests
