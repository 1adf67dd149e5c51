// SPDX-License-Identifier: BSD-3-Clause
#include "tests/model/explore.h"

namespace isopool::model {
namespace {

/// One thread publishes while there is room, another consumes; the rest is consumed at the end.
/// Neither waits: every order of their attempts is an execution.
template <typename Memory, size_t kSlots, unsigned kPublishes, unsigned kTakes, uint32_t firstCount>
struct RingSuite : rl::test_suite<RingSuite<Memory, kSlots, kPublishes, kTakes, firstCount>, 2> {
  Execution execution;
  Ring<Memory, kSlots> ring{firstCount};
  uint64_t published = 0;
  uint64_t taken = 0;

  void thread(unsigned index) {
    if (index == 0) {
      for (unsigned attempt = 0; attempt < kPublishes; ++attempt) {
        if (ring.writer.hasRoom()) ring.publish(++published);
      }
    } else {
      for (unsigned attempt = 0; attempt < kTakes; ++attempt) takeOne();
    }
  }
  bool takeOne() {
    const std::optional<uint64_t> number = ring.take();
    if (number) RL_ASSERT(*number == ++taken);
    return number.has_value();
  }
  void after() {
    while (takeOne()) {
    }
    RL_ASSERT(taken == published);
  }
};

constexpr uint32_t kLastCount = UINT32_MAX;

TEST(RingModel, EachItemIsTakenOnceWholeAndInOrderThroughARingOfOneSlot) {
  expectHolds<RingSuite<ModelMemory<>, 1, 5, 5, 0>>();
}

TEST(RingModel, EachItemIsTakenOnceWholeAndInOrderThroughARingOfTwoSlots) {
  expectHolds<RingSuite<ModelMemory<>, 2, 4, 4, 0>>();
}

TEST(RingModel, NothingIsLostWhereTheCountsWrap) {
  expectHolds<RingSuite<ModelMemory<>, 2, 4, 4, kLastCount - 1>>();
}

// The checker can fail: each memory order that the ring uses is needed.
using TailWithoutRelease = ModelMemory<Flaw::kExchangesReleaseNothing>;
using HeadWithoutRelease = ModelMemory<Flaw::kStoresReleaseNothing>;
using LoadsWithoutAcquire = ModelMemory<Flaw::kLoadsAcquireNothing>;

TEST(RingModel, ATailThatReleasesNothingIsFound) {
  expectFinds<RingSuite<TailWithoutRelease, 2, 3, 3, 0>>(rl::test_result_data_race);
}

TEST(RingModel, AHeadThatReleasesNothingIsFound) {
  expectFinds<RingSuite<HeadWithoutRelease, 2, 3, 3, 0>>(rl::test_result_data_race);
}

TEST(RingModel, LoadsThatAcquireNothingAreFound) {
  expectFinds<RingSuite<LoadsWithoutAcquire, 2, 3, 3, 0>>(rl::test_result_data_race);
}

}  // namespace
}  // namespace isopool::model
