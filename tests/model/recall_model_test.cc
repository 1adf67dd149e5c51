// SPDX-License-Identifier: BSD-3-Clause
#include "tests/model/explore.h"

namespace isopool::model {
namespace {

/// The client recalls calls while the worker starts them, one after the other. Either side may die
/// at any step.
template <typename Memory, uint64_t kCalls, bool clientMayDie, bool workerMayDie>
struct RecallSuite : rl::test_suite<RecallSuite<Memory, kCalls, clientMayDie, workerMayDie>, 2> {
  using Word = typename Memory::template Word<uint64_t>;
  Execution execution;
  std::array<Word, kCalls + 1> recalled;  // a place for each unanswered call, as in a channel
  Word started;
  // Records for the claims; not part of the explored program.
  std::array<bool, kCalls + 1> certainlyNotStarted{};
  std::array<bool, kCalls + 1> ran{};

  void thread(unsigned index) {
    const bool client = index == 0;
    const auto body = [&] {
      for (uint64_t call = 1; call <= kCalls; ++call) {
        if (client) {
          certainlyNotStarted[call] = ipc::recallCall<Memory>(recalled[call], started, call);
        } else if (ipc::startCall<Memory>(started, recalled[call], call)) {
          ran[call] = true;
        }
      }
    };
    if (client ? clientMayDie : workerMayDie) {
      runMortal(body, [] {});
    } else {
      body();
    }
  }
  void after() {
    for (uint64_t call = 1; call <= kCalls; ++call) {
      RL_ASSERT(!(certainlyNotStarted[call] && ran[call]));
      // If the outcome is not certain, the dead worker's `started` covers every call that ran.
      RL_ASSERT(!ran[call] || ipc::mayHaveStarted<Memory>(started, call));
    }
  }
};

/// A call in the place of an earlier, answered call, which is recalled too late.
template <typename Memory>
struct OlderRecallSuite : rl::test_suite<OlderRecallSuite<Memory>, 2> {
  using Word = typename Memory::template Word<uint64_t>;
  Execution execution;
  Word recalled{0};
  Word started{0};
  bool ran = false;

  void thread(unsigned index) {
    if (index == 0) {
      ipc::recallCall<Memory>(recalled, started, 1);
    } else {
      ipc::startCall<Memory>(started, recalled, 1);
      ran = ipc::startCall<Memory>(started, recalled, 2);
    }
  }
  void after() { RL_ASSERT(ran); }
};

TEST(RecallModel, CallReportedAsNotStartedDoesNotRun) {
  expectHolds<RecallSuite<ModelMemory<>, 3, false, false>>();
}

TEST(RecallModel, HoldsIfEitherSideDiesAtAnyStep) {
  expectHolds<RecallSuite<ModelMemory<>, 3, true, true>>();
}

TEST(RecallModel, ACallIsNotHeldBackByTheRecallOfTheOneBeforeInItsPlace) {
  expectHolds<OlderRecallSuite<ModelMemory<>>>();
}

TEST(RecallModel, RecallAndStartWithoutATotalOrderAreFound) {
  expectFinds<RecallSuite<ModelMemory<Flaw::kNoTotalOrder>, 1, false, false>>(
      rl::test_result_user_assert_failed);
}

}  // namespace
}  // namespace isopool::model
