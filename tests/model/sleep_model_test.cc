// SPDX-License-Identifier: BSD-3-Clause
#include "tests/model/explore.h"

namespace isopool::model {
namespace {

enum class Look { kOnceMore, kSkipped };

/// Takes the next item; sleeps while there is none.
template <typename Memory, size_t kSlots>
uint64_t takeOrSleep(Ring<Memory, kSlots>& ring, Look look) {
  for (;;) {
    if (const std::optional<uint64_t> number = ring.take()) return *number;
    ipc::sleepUnless([&](auto&& step) { step(ring.reader); },
                     [&] { return look == Look::kOnceMore && ring.reader.ready(); },
                     [&] {
                       Memory::sleep({{&ring.tail, ring.reader.consumed()}});
                     });
  }
}

/// One direction. A reader that is not woken is a deadlock, which the checker reports.
template <typename Memory, uint64_t kItems, Look look = Look::kOnceMore>
struct OneWaySuite : rl::test_suite<OneWaySuite<Memory, kItems, look>, 2> {
  Execution execution;
  Ring<Memory, 4> ring;

  void thread(unsigned index) {
    for (uint64_t item = 1; item <= kItems; ++item) {
      if (index == 0) {
        ring.publish(item);
      } else {
        RL_ASSERT(takeOrSleep(ring, look) == item);
      }
    }
  }
};

/// Both directions: calls in one, answers in the other; both sides sleep.
template <typename Memory, uint64_t kCalls>
struct RoundTripSuite : rl::test_suite<RoundTripSuite<Memory, kCalls>, 2> {
  Execution execution;
  Ring<Memory, 1> calls;
  Ring<Memory, 1> answers;

  void thread(unsigned index) {
    for (uint64_t call = 1; call <= kCalls; ++call) {
      if (index == 0) {
        calls.publish(call);
        RL_ASSERT(takeOrSleep(answers, Look::kOnceMore) == call);
      } else {
        RL_ASSERT(takeOrSleep(calls, Look::kOnceMore) == call);
        answers.publish(call);
      }
    }
  }
};

/// A worker that sleeps on the rings of two clients, as CallLoop waits.
template <typename Memory>
struct WorkerSuite : rl::test_suite<WorkerSuite<Memory>, 3> {
  Execution execution;
  Ring<Memory, 1> first;
  Ring<Memory, 1> second;

  void thread(unsigned index) {
    if (index == 0) return first.publish(1);
    if (index == 1) return second.publish(1);
    unsigned served = 0;
    while (served < 2) {
      const unsigned before = served;
      if (first.take()) ++served;
      if (second.take()) ++served;
      if (served != before) continue;
      ipc::sleepUnless(
          [&](auto&& step) {
            step(first.reader);
            step(second.reader);
          },
          [&] { return first.reader.ready() || second.reader.ready(); },
          [&] {
            Memory::sleep(
                {{&first.tail, first.reader.consumed()}, {&second.tail, second.reader.consumed()}});
          });
    }
  }
};

TEST(SleepModel, AReaderThatSleepsIsWokenForEachItem) {
  expectHolds<OneWaySuite<ModelMemory<>, 2>>();
}

TEST(SleepModel, BothSidesOfARoundTripAreWoken) { expectHolds<RoundTripSuite<ModelMemory<>, 1>>(); }

TEST(SleepModel, AWorkerThatSleepsOnTwoClientsIsWokenByEach) {
  expectHolds<WorkerSuite<ModelMemory<>>>(Search{4});
}

TEST(SleepModel, SleepingWithoutASecondLookIsFound) {
  expectFinds<OneWaySuite<ModelMemory<>, 1, Look::kSkipped>>(rl::test_result_deadlock);
}

TEST(SleepModel, SleepingAndPublishingWithoutATotalOrderIsFound) {
  expectFinds<OneWaySuite<ModelMemory<Flaw::kNoTotalOrder>, 1>>(rl::test_result_deadlock);
}

}  // namespace
}  // namespace isopool::model
