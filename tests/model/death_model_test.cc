// SPDX-License-Identifier: BSD-3-Clause
#include "tests/model/explore.h"

namespace isopool::model {
namespace {

constexpr uint32_t kOwnerDied = 1;

enum class Mistake {
  kNone,
  kSettlesWithoutDraining,
  kTakesStartedForNeverStarted,
  kAnnouncesTheStartTooLate,
};

/// Whether the calls are in the ring before the worker starts, or are published while it reads
/// and sleeps.
enum class Calls { kThere, kComing };

/// A client's calls to a worker that may die at any step: the client waits, drains and settles with
/// awaitOutcome(), the worker takes, starts and answers as CallRunner does.
template <typename Memory, uint64_t kCalls, Calls how, Mistake mistake = Mistake::kNone>
struct WorkerDeathSuite : rl::test_suite<WorkerDeathSuite<Memory, kCalls, how, mistake>, 2> {
  enum class Outcome { kPending, kAnswered, kLost, kNeverStarted };
  using Word = typename Memory::template Word<uint32_t>;
  using LongWord = typename Memory::template Word<uint64_t>;

  Execution execution;
  Ring<Memory, 2> calls;
  Ring<Memory, 2> answers;
  Word life;
  LongWord started;
  std::array<LongWord, kCalls + 1> recalled;
  std::array<Outcome, kCalls + 1> outcomes{};
  std::array<bool, kCalls + 1> ran{};

  /// The client that awaitOutcome() needs.
  struct Client {
    WorkerDeathSuite& suite;
    uint64_t call;
    uint32_t seenLife = 0;
    bool seenDeath = false;

    void deliver() {
      if (mistake == Mistake::kSettlesWithoutDraining && seenDeath) return;
      while (const std::optional<uint64_t> answered = suite.answers.take()) {
        suite.setOutcome(*answered, Outcome::kAnswered);
      }
    }
    bool hasOutcome() const { return suite.outcomes[call] != Outcome::kPending; }
    bool workerDied() {
      seenDeath = suite.life.load(std::memory_order_acquire) == kOwnerDied;
      return seenDeath;
    }
    void settle() {
      for (uint64_t pending = 1; pending <= kCalls; ++pending) {
        if (suite.outcomes[pending] != Outcome::kPending) continue;
        const bool mayHaveStarted = mistake != Mistake::kTakesStartedForNeverStarted &&
                                    ipc::mayHaveStarted<Memory>(suite.started, pending);
        suite.setOutcome(pending, mayHaveStarted ? Outcome::kLost : Outcome::kNeverStarted);
      }
    }
    bool leaves() const { return false; }
    void watch() { seenLife = suite.life.load(std::memory_order_acquire); }
    void sleep() {
      Memory::sleep(
          {{&suite.answers.tail, suite.answers.reader.consumed()}, {&suite.life, seenLife}});
    }
    bool completionReady() const { return suite.answers.reader.ready(); }
    void announceSleep() { suite.answers.reader.announceSleep(); }
    void withdrawSleep() { suite.answers.reader.withdrawSleep(); }
  };

  void before() {
    if (how == Calls::kThere) publishAll();
  }
  void thread(unsigned index) {
    if (index == 0) return beClient();
    runMortal([this] { beWorker(); },
              [this] {
                // As the kernel does with a robust mutex of a dead thread.
                life.exchange(kOwnerDied, std::memory_order_seq_cst);
                Memory::wake(life);
              });
  }
  void publishAll() {
    for (uint64_t call = 1; call <= kCalls; ++call) calls.publish(call);
  }
  void beClient() {
    if (how == Calls::kComing) publishAll();
    for (uint64_t call = 1; call <= kCalls; ++call) {
      Client client{*this, call};
      ipc::awaitOutcome(client);
    }
  }
  void beWorker() {
    for (uint64_t served = 0; served < kCalls; ++served) {
      const uint64_t call = nextCall();
      if (mistake == Mistake::kAnnouncesTheStartTooLate) run(call);
      RL_ASSERT(ipc::startCall<Memory>(started, recalled[call], call));
      if (mistake != Mistake::kAnnouncesTheStartTooLate) run(call);
      answers.publish(call);
    }
  }
  void run(uint64_t call) {
    ran[call] = true;
    Memory::reach(CrashPoint::kCallReturned);
  }
  uint64_t nextCall() {
    for (;;) {
      if (const std::optional<uint64_t> call = calls.take()) return *call;
      ipc::sleepUnless([&](auto&& step) { step(calls.reader); },
                       [&] { return calls.reader.ready(); },
                       [&] {
                         Memory::sleep({{&calls.tail, calls.reader.consumed()}});
                       });
    }
  }
  void setOutcome(uint64_t call, Outcome outcome) {
    RL_ASSERT(outcomes[call] == Outcome::kPending);
    outcomes[call] = outcome;
  }
  void after() {
    for (uint64_t call = 1; call <= kCalls; ++call) {
      const Outcome outcome = outcomes[call];
      RL_ASSERT(outcome != Outcome::kPending);
      RL_ASSERT(!(outcome == Outcome::kNeverStarted && ran[call]));
      // A completed call is delivered, whatever happened afterwards.
      RL_ASSERT((outcome == Outcome::kAnswered) == (call <= answers.writer.published()));
    }
  }
};

/// A client that may die at any step. Its supervisor sees the death and rings the worker's
/// doorbell.
template <typename Memory, uint64_t kCalls, bool doorbellWakes = true>
struct ClientDeathSuite : rl::test_suite<ClientDeathSuite<Memory, kCalls, doorbellWakes>, 2> {
  using Word = typename Memory::template Word<uint32_t>;
  Execution execution;
  Ring<Memory, 2> calls;
  Ring<Memory, 2> answers;
  Word doorbell;
  uint64_t served = 0;

  void thread(unsigned index) {
    if (index == 1) return beWorker();
    runMortal([this] { beClient(); }, [] {});
    // The client is dead or has left in order: Doorbell::ring().
    doorbell.fetch_add(1, std::memory_order_release);
    if (doorbellWakes) Memory::wake(doorbell);
  }
  void beClient() {
    for (uint64_t call = 1; call <= kCalls; ++call) calls.publish(call);
    answers.take();
  }
  void beWorker() {
    while (doorbell.load(std::memory_order_acquire) == 0) {
      if (const std::optional<uint64_t> call = calls.take()) {
        RL_ASSERT(*call == ++served);
        answers.publish(*call);
        continue;
      }
      ipc::sleepUnless(
          [&](auto&& step) { step(calls.reader); },
          [&] { return doorbell.load(std::memory_order_acquire) != 0 || calls.reader.ready(); },
          [&] {
            Memory::sleep({{&doorbell, 0}, {&calls.tail, calls.reader.consumed()}});
          });
    }
  }
};

TEST(DeathModel, ACallHasOneOutcomeWhereverItsWorkerDies) {
  expectHolds<WorkerDeathSuite<ModelMemory<>, 1, Calls::kThere>>();
}

// The full searches do not end within minutes: switches are bounded, but a death is tried at
// every step.
TEST(DeathModel, TwoCallsHaveOneOutcomeEachWhereverTheirWorkerDies) {
  expectHolds<WorkerDeathSuite<ModelMemory<>, 2, Calls::kThere>>(Search{5});
}

TEST(DeathModel, ACallThatComesToASleepingWorkerHasOneOutcomeWhereverThatDies) {
  expectHolds<WorkerDeathSuite<ModelMemory<>, 1, Calls::kComing>>(Search{6});
}

TEST(DeathModel, AWorkerLeavesItsClientWhereverThatDies) {
  expectHolds<ClientDeathSuite<ModelMemory<>, 1>>();
}

TEST(DeathModel, SettlingWithoutDrainingIsFound) {
  expectFinds<WorkerDeathSuite<ModelMemory<>, 1, Calls::kThere, Mistake::kSettlesWithoutDraining>>(
      rl::test_result_user_assert_failed);
}

TEST(DeathModel, TakingAStartedCallForOneThatNeverDidIsFound) {
  expectFinds<
      WorkerDeathSuite<ModelMemory<>, 1, Calls::kThere, Mistake::kTakesStartedForNeverStarted>>(
      rl::test_result_user_assert_failed);
}

TEST(DeathModel, AnnouncingTheStartAfterTheUsersCodeIsFound) {
  expectFinds<
      WorkerDeathSuite<ModelMemory<>, 1, Calls::kThere, Mistake::kAnnouncesTheStartTooLate>>(
      rl::test_result_user_assert_failed);
}

TEST(DeathModel, DoorbellWithoutAWakeIsFound) {
  expectFinds<ClientDeathSuite<ModelMemory<>, 1, false>>(rl::test_result_deadlock);
}

}  // namespace
}  // namespace isopool::model
