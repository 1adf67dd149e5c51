// SPDX-License-Identifier: BSD-3-Clause
// A worker whose native code writes invalid data, at full speed, into the memory that it shares
// with its client. Guaranteed: the client never crashes, never hangs and never reads outside of the
// shared memory; it reports the worker as lost within a second; the worker is replaced; calls to
// other workers are right. Not guaranteed: that the values of a hostile worker are meaningful.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <iostream>
#include <thread>

#include "tests/client/harness.h"
#include "tests/ipc/seed.h"

namespace isopool::tests {
namespace {

using Clock = std::chrono::steady_clock;

/// The same values as in scribbler.cc.
enum class Lie { kWords, kSlots, kResults, kAll, kLife };

constexpr int kRounds = 10;
constexpr milliseconds kHang(10'000);

class HostileWorker : public testing::TestWithParam<Lie> {
 protected:
  static constexpr size_t kHostile = 0;
  static constexpr size_t kHonest = 1;

  InterpreterSession sessionOn(size_t slot) {
    return pool_.subject().object().acquireSession(&pool_.manager().allInstances()[slot]);
  }

  /// Starts the scribbling thread. Returns the number of segments that it writes to.
  int64_t beginScribbling(InterpreterSession& session, int64_t seed) {
    return session.global("ctypes", "CDLL")({std::string(SCRIBBLER)})
        .attr("begin_scribbling")({static_cast<int64_t>(GetParam()), seed})
        .toIValue()
        .toInt();
  }

  /// Calls until the worker is reported as lost. Returns the text of the report.
  std::string useUntilLost(InterpreterSession& session, int64_t seed) {
    const at::Tensor large = at::arange(2000);
    for (int64_t call = 0;; ++call) {
      try {
        // The answer to this call may already be invalid.
        if (call == 0) static_cast<void>(beginScribbling(session, seed));
        // Results of both kinds: inline ones and those in the arena.
        const at::IValue answer =
            session.self.attr("clone")({call % 2 == 0 ? large : large.slice(0, 0, 8)}).toIValue();
        if (answer.isTensor() && answer.toTensor().defined()) readAll(answer.toTensor());
      } catch (const WorkerLost& lost) {
        return lost.what();
      } catch (const std::exception&) {
        // Invalid data that looks like an error, or a value of another type than expected.
      }
    }
  }

  static void readAll(const at::Tensor& tensor) {
    constexpr int64_t kMost = 1 << 20;  // invalid data may describe a large view of few bytes
    if (tensor.numel() < kMost) static_cast<void>(tensor.contiguous().clone());
  }

  std::mt19937_64 random_ = seededRandom();
  OwnPool pool_{2, {"ISOPOOL_LOG=off"}};
};

TEST_P(HostileWorker, IsReportedWithinASecondAndReplacedWithoutHarmToOthers) {
  std::atomic<bool> over{false};
  auto neighbour = std::async(std::launch::async, [&] {
    const at::Tensor content = at::arange(5000);
    InterpreterSession session = sessionOn(kHonest);
    int64_t calls = 0;
    for (; !over.load(); ++calls) {
      const at::Tensor answer = session.self.attr("clone")({content}).toIValue().toTensor();
      if (!at::equal(answer, content)) return int64_t{-1};
    }
    return calls;
  });

  // Stops the neighbour on every path, before the destructor of its future waits for it.
  struct AtEnd {
    std::atomic<bool>& over;
    ~AtEnd() { over = true; }
  } atEnd{over};

  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const pid_t hostile = pool_.processOf(kHostile);
    InterpreterSession session = sessionOn(kHostile);
    const auto seed = static_cast<int64_t>(random_() & 0x7fffffff);
    const auto begin = Clock::now();
    auto report = std::async(std::launch::async, [&] { return useUntilLost(session, seed); });
    if (report.wait_for(kHang) != std::future_status::ready) {
      ADD_FAILURE() << "a call to the hostile worker hangs";
      ::kill(hostile, SIGKILL);
    }
    EXPECT_NE(report.get().find("worker 0"), std::string::npos);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    ASSERT_TRUE(waitUntil([&] {
      const pid_t now = pool_.processOf(kHostile);
      return now != -1 && now != hostile;
    })) << "it was not replaced";
    EXPECT_EQ(sessionOn(kHostile).self({"slot"}).toIValue().toInt(), int64_t{kHostile});
  }
  over = true;
  EXPECT_GT(neighbour.get(), 0) << "a call of the honest worker was wrong, or none was made";

  std::sort(times.begin(), times.end());
  std::cout << "reported after " << times[times.size() / 2] << " ms (median), " << times.back()
            << " ms (longest of " << times.size() << ")\n";
  EXPECT_LT(times.back(), 1000) << "milliseconds";
}

INSTANTIATE_TEST_SUITE_P(Lies, HostileWorker,
                         testing::Values(Lie::kWords, Lie::kSlots, Lie::kAll, Lie::kLife),
                         [](const auto& lie) {
                           return lie.param == Lie::kWords   ? "Words"
                                  : lie.param == Lie::kSlots ? "Slots"
                                  : lie.param == Lie::kAll   ? "All"
                                                             : "Life";
                         });

/// Random words in the output arena are valid values, except where an answer itself lies in it.
using HostileResults = HostileWorker;

TEST_P(HostileResults, AreReadWithoutHarm) {
  InterpreterSession session = sessionOn(kHostile);
  ASSERT_GE(beginScribbling(session, 1), 2) << "the worker found nothing to write to";
  const at::Tensor content = at::arange(5000);
  const auto end = Clock::now() + std::chrono::seconds(1);
  int calls = 0;
  for (; Clock::now() < end; ++calls) {
    const at::IValue answer = session.self.attr("clone")({content}).toIValue();
    ASSERT_TRUE(answer.isTensor());
    EXPECT_EQ(answer.toTensor().sizes(), content.sizes())
        << "the answer's own description is not in the arena";
    readAll(answer.toTensor());
  }
  EXPECT_GT(calls, 0);
}

INSTANTIATE_TEST_SUITE_P(Lies, HostileResults, testing::Values(Lie::kResults),
                         [](const auto&) { return "Results"; });

}  // namespace
}  // namespace isopool::tests
