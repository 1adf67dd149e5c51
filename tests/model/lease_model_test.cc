// SPDX-License-Identifier: BSD-3-Clause
#include "tests/model/explore.h"

namespace isopool::model {
namespace {

/// Blocks are lent, used by their borrowers, returned, and written by the lender, as LeaseTable
/// lends and collects. Two borrowing threads have leases that share a hint.
template <typename Memory, unsigned kLooks, bool borrowersMayDie = false>
struct LeaseSuite : rl::test_suite<LeaseSuite<Memory, kLooks, borrowersMayDie>, 3> {
  using Word = typename Memory::template Word<uint32_t>;
  static constexpr uint32_t kBorrowers = 2;
  Execution execution;
  std::array<Word, kBorrowers> returned;
  Word groupReturns;
  std::array<Plain<uint64_t>, kBorrowers> blocks;
  // The lender's private state.
  std::array<uint32_t, kBorrowers> generations{1, 1};
  std::array<bool, kBorrowers> lent{true, true};
  uint32_t seenReturns = 0;

  void before() {
    for (auto& block : blocks) block.write(1);
  }
  void thread(unsigned index) {
    if (index == kBorrowers) {
      for (unsigned look = 0; look < kLooks; ++look) collect();
      return;
    }
    const auto borrow = [&] {
      RL_ASSERT(blocks[index].read() == 1);
      blocks[index].write(2);
      ipc::giveBack<Memory>(returned[index], groupReturns, 1);
    };
    if (borrowersMayDie) {
      runMortal(borrow, [] {});
    } else {
      borrow();
    }
  }
  void collect() {
    if (!ipc::returnsCounted<Memory>(groupReturns, seenReturns)) return;
    for (uint32_t index = 0; index < kBorrowers; ++index) {
      if (!lent[index]) continue;
      if (!ipc::wasGivenBack<Memory>(returned[index], generations[index])) continue;
      RL_ASSERT(blocks[index].read() == 2);
      blocks[index].write(3);
      lent[index] = false;
    }
  }
  void after() {
    collect();
    for (uint32_t index = 0; index < kBorrowers; ++index) {
      // The lender takes a dead borrower's leases back when its process has ended.
      RL_ASSERT(!lent[index] || execution.dead[index]);
    }
  }
};

/// One lease is lent repeatedly, through a ring: the return of an older lease must not count for
/// the present one.
template <typename Memory, unsigned kLooks>
struct RelendSuite : rl::test_suite<RelendSuite<Memory, kLooks>, 2> {
  using Word = typename Memory::template Word<uint32_t>;
  Execution execution;
  Ring<Memory, 4> calls;
  Word returned;
  Word groupReturns;
  Plain<uint64_t> block;
  uint32_t generation = 0;
  uint32_t seenReturns = 0;

  void before() { lend(); }
  void thread(unsigned index) {
    for (unsigned look = 0; look < kLooks; ++look) {
      if (index == 0) {
        collect();
      } else {
        borrow();
      }
    }
  }
  void lend() {
    block.write(++generation);
    calls.publish(generation);
  }
  void collect() {
    if (!ipc::returnsCounted<Memory>(groupReturns, seenReturns)) return;
    if (!ipc::wasGivenBack<Memory>(returned, generation)) return;
    RL_ASSERT(block.read() == 100 + generation);
    lend();
  }
  void borrow() {
    const std::optional<uint64_t> lent = calls.take();
    if (!lent) return;
    RL_ASSERT(block.read() == *lent);
    block.write(100 + *lent);
    ipc::giveBack<Memory>(returned, groupReturns, static_cast<uint32_t>(*lent));
  }
};

TEST(LeaseModel, NoReturnIsLostAndNoBlockIsUsedByBothSides) {
  expectHolds<LeaseSuite<ModelMemory<>, 3>>();
}

TEST(LeaseModel, ABorrowerThatDiesAtAnyStepReturnsAllOrNothing) {
  expectHolds<LeaseSuite<ModelMemory<>, 2, true>>();
}

TEST(LeaseModel, ALeaseIsLentAgainAsSoonAsItIsBack) {
  expectHolds<RelendSuite<ModelMemory<>, 3>>();
}

TEST(LeaseModel, AReturnThatReleasesNothingIsFound) {
  expectFinds<LeaseSuite<ModelMemory<Flaw::kStoresReleaseNothing>, 2>>(rl::test_result_data_race);
}

TEST(LeaseModel, AHintThatReleasesNothingLosesAReturn) {
  expectFinds<LeaseSuite<ModelMemory<Flaw::kAdditionsReleaseNothing>, 2>>(
      rl::test_result_user_assert_failed);
}

}  // namespace
}  // namespace isopool::model
