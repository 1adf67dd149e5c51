// SPDX-License-Identifier: BSD-3-Clause
// One end of a channel is killed at every machine instruction of each step of the protocol: for
// each k, from 1 to the last instruction, a process executes k instructions and receives SIGKILL.
// Its effect must be visible to the other end, which is this process, as a whole or not at all, and
// must become visible at one instruction.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/channel/lease_table.h"
#include "ipc/channel/liveness_word.h"
#include "tests/ipc/channel/peers.h"
#include "tests/ipc/channel/stepped_process.h"

namespace isopool::ipc {
namespace {

using tests::callWith;
using tests::ChannelMemory;
using tests::contentOf;
using tests::isContentOf;
using tests::payloadWith;
using tests::SteppedProcess;

constexpr base::Epoch kEpoch(11);

/// Counts over all tests of this file, printed at the end.
struct Total : public ::testing::Environment {
  uint64_t instructions = 0;
  uint64_t kills = 0;

  void TearDown() override {
    std::printf("single steps: %llu instructions covered, %llu kills\n",
                static_cast<unsigned long long>(instructions),
                static_cast<unsigned long long>(kills));
  }
};
Total* const total = static_cast<Total*>(::testing::AddGlobalTestEnvironment(new Total));

/// A channel whose one end dies in a forked process and whose other end stays here.
class Channel {
 public:
  /// Calls 1 to 3 are completed and consumed; `waiting` more are published and not taken.
  explicit Channel(uint64_t waiting) {
    ReceivedCall call;
    ReceivedCompletion completion;
    for (published = 0; published < 3;) {
      client.publish(callWith(contentOf(++published)));
      worker.peek(call);
      worker.taken();
      worker.start(call.sequence);
      worker.complete(call.sequence, CompletionStatus::kValue, payloadWith(contentOf(published)));
      client.peek(completion);
      client.consumed();
    }
    while (waiting-- > 0) client.publish(callWith(contentOf(++published)));
  }

  /// Takes the waiting call, as a worker does before it runs the call.
  void take() {
    ReceivedCall call;
    worker.peek(call);
    worker.taken();
  }

  /// The number of calls that the worker finds. Each must be whole and the next in order.
  uint64_t callsFound() {
    uint64_t found = 0;
    ReceivedCall call;
    for (Received received; (received = worker.peek(call)) != Received::kNothing; ++found) {
      EXPECT_EQ(received, Received::kOne);
      EXPECT_TRUE(isContentOf(call.sequence, call.bytes, call.payload.inlineBytes)) << "torn";
      EXPECT_EQ(call.sequence, 4 + found);
      if (received != Received::kOne) break;
      worker.taken();
    }
    return found;
  }
  /// The same for the completions that the client finds.
  uint64_t completionsFound() {
    uint64_t found = 0;
    ReceivedCompletion completion;
    for (Received received; (received = client.peek(completion)) != Received::kNothing; ++found) {
      EXPECT_EQ(received, Received::kOne);
      EXPECT_TRUE(
          isContentOf(completion.sequence, completion.bytes, completion.payload.inlineBytes))
          << "torn";
      EXPECT_EQ(completion.sequence, 4 + found);
      if (received != Received::kOne) break;
      client.consumed();
    }
    return found;
  }

 private:
  ChannelMemory memory_{ChannelMemory::Views::kSealed};

 public:
  ClientEnd client{kEpoch, memory_.clientOwn(), memory_.clientPeer()};
  WorkerEnd worker{kEpoch, memory_.workerOwn(), memory_.workerPeer()};
  uint64_t published = 0;
};

/// A call from its publication to its answer.
void expectServed() {
  Channel channel(1);
  EXPECT_EQ(channel.callsFound(), 1u);
  EXPECT_EQ(channel.worker.start(4), Start::kRun);
  channel.worker.complete(4, CompletionStatus::kValue, payloadWith(contentOf(4)));
  EXPECT_EQ(channel.completionsFound(), 1u);
}

class SingleStep : public testing::Test {
 protected:
  void SetUp() override {
    static const std::string reason = tests::whyNoneCanBeStepped();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  /// For each k: `make` prepares a channel; a process of its own runs `prepare` and k instructions
  /// of `act`, and is killed; `seen` returns whether the survivor sees the effect of `act`, and
  /// checks the rest itself.
  template <typename Scene>
  void killAtEveryInstruction(const std::function<std::unique_ptr<Scene>()>& make,
                              const std::function<void(Scene&)>& prepare,
                              const std::function<void(Scene&)>& act,
                              const std::function<bool(Scene&)>& seen) {
    {
      // Runs once in this process, so that the dynamic linker's work at a first call is
      // not counted.
      const auto scene = make();
      prepare(*scene);
      act(*scene);
    }
    std::optional<uint64_t> visibleSince;
    for (uint64_t steps = 1;; ++steps) {
      const auto scene = make();
      SteppedProcess process([&] { prepare(*scene); }, [&] { act(*scene); });
      const bool whole = process.step(steps) < steps;
      process.kill();
      ++total->kills;
      const bool visible = seen(*scene);
      EXPECT_TRUE(visible || !visibleSince) << "was visible after " << visibleSince.value_or(0)
                                            << " instructions, not after " << steps;
      if (visible && !visibleSince) visibleSince = steps;
      expectServed();
      if (HasFailure()) {
        FAIL() << "after " << steps << " instructions";
      }
      if (!whole) continue;
      EXPECT_TRUE(visible) << "all instructions were executed";
      total->instructions += steps - 1;
      RecordProperty("instructions", static_cast<int>(steps - 1));
      return;
    }
  }
};

// ---- The client dies -------------------------------------------------------------------------

class ClientInASingleStep : public SingleStep {
 protected:
  static void nothing(Channel&) {}

  void publish(bool workerSleeps) {
    killAtEveryInstruction<Channel>(
        [=] {
          auto channel = std::make_unique<Channel>(1);
          if (workerSleeps) channel->worker.announceSleep();
          return channel;
        },
        nothing, [](Channel& channel) { channel.client.publish(callWith(content_)); },
        [](Channel& channel) { return channel.callsFound() == 2; });
  }

  inline static const std::vector<std::byte> content_ = contentOf(5);
};

TEST_F(ClientInASingleStep, PublishesACallWholeOrNotAtAll) { publish(/*workerSleeps=*/false); }

TEST_F(ClientInASingleStep, PublishesToASleepingWorkerWholeOrNotAtAll) {
  publish(/*workerSleeps=*/true);
}

TEST_F(ClientInASingleStep, ConsumesACompletionOrLeavesIt) {
  killAtEveryInstruction<Channel>(
      [] {
        auto channel = std::make_unique<Channel>(1);
        channel->take();
        channel->worker.start(4);
        channel->worker.complete(4, CompletionStatus::kValue, payloadWith(contentOf(4)));
        return channel;
      },
      nothing,
      [](Channel& channel) {
        ReceivedCompletion completion;
        if (channel.client.peek(completion) == Received::kOne) channel.client.consumed();
      },
      [](Channel& channel) {
        // The worker regards the place of a completion as free when it is consumed, and
        // not earlier.
        const uint32_t consumed = channel.worker.completionsConsumed();
        EXPECT_TRUE(consumed == 3 || consumed == 4) << consumed;
        return consumed == 4;
      });
}

TEST_F(ClientInASingleStep, RecallsACallOrDoesNot) {
  killAtEveryInstruction<Channel>([] { return std::make_unique<Channel>(1); }, nothing,
                                  [](Channel& channel) { channel.client.recall(4); },
                                  [](Channel& channel) {
                                    EXPECT_EQ(channel.callsFound(), 1u);
                                    return channel.worker.start(4) == Start::kRecalled;
                                  });
}

TEST_F(ClientInASingleStep, SleepsWithoutHarmToTheWorkersAnswer) {
  killAtEveryInstruction<Channel>(
      [] {
        auto channel = std::make_unique<Channel>(1);
        channel->take();
        channel->worker.start(4);
        return channel;
      },
      nothing,
      [](Channel& channel) {
        channel.client.announceSleep();
        channel.client.withdrawSleep();
        channel.client.allowSpin(7, 3);
      },
      [](Channel& channel) {
        channel.worker.complete(4, CompletionStatus::kValue, payloadWith(contentOf(4)));
        EXPECT_EQ(channel.completionsFound(), 1u);
        const int64_t allowance = channel.worker.spinAllowance();
        EXPECT_TRUE(allowance == 0 || allowance == 7'000) << allowance;
        return true;
      });
}

/// A block that is lent over a channel, and the lender's lease table.
struct Loan {
  explicit Loan(bool toClient)
      : books(toClient ? channel.worker.peerReturns() : channel.client.peer().inputReturns),
        lease(*books.lend(&block)) {}

  Channel channel{0};
  char block = 0;
  LeaseTable books;
  Lease lease;

  /// True if the block was returned before the borrower's death, as far as the lender sees from the
  /// hints. After the death it must have been returned exactly once in any case.
  bool seen() {
    uint32_t before = 0;
    uint32_t after = 0;
    books.collect([&](const void* returned) {
      EXPECT_EQ(returned, &block);
      ++before;
    });
    books.collectAll([&](const void* returned) {
      EXPECT_EQ(returned, &block);
      ++after;
    });
    EXPECT_EQ(before + after, 1u) << "was returned twice or never";
    EXPECT_EQ(books.outstanding(), 0u);
    return before == 1;
  }
};

TEST_F(ClientInASingleStep, GivesAResultBackOnce) {
  killAtEveryInstruction<Loan>(
      [] { return std::make_unique<Loan>(/*toClient=*/true); }, [](Loan&) {},
      [](Loan& loan) { returnLease(loan.channel.client.returns(), loan.lease); },
      [](Loan& loan) { return loan.seen(); });
}

// ---- The worker dies -------------------------------------------------------------------------

/// A channel, and whether the worker's user code ran: the truth with which the client's view
/// is compared.
struct Served {
  explicit Served(uint64_t waiting) : channel(waiting) {}

  Channel channel;
  tests::SharedWithChildren<std::atomic<bool>> ran;
};

class WorkerInASingleStep : public SingleStep {
 protected:
  static std::unique_ptr<Served> oneCallWaits() { return std::make_unique<Served>(1); }
  static void attach(Served& served) { served.channel.worker.attach(); }

  /// Holds for every death of an attached worker: the client sees it at once, and a call that the
  /// client would run elsewhere has not run.
  static void expectDecidable(Served& served) {
    const ClientEnd& client = served.channel.client;
    EXPECT_TRUE(client.attached());
    EXPECT_TRUE(livenessWordOwnerDied(client.peer())) << "the death is not seen";
    EXPECT_TRUE(client.hasStarted(4) || !*served.ran) << "the call would run twice";
  }
};

TEST_F(WorkerInASingleStep, ConsumesACallOrLeavesIt) {
  killAtEveryInstruction<Served>(
      oneCallWaits, attach, [](Served& served) { served.channel.take(); },
      [](Served& served) {
        expectDecidable(served);
        EXPECT_FALSE(served.channel.client.hasStarted(4));
        // The slot may or may not be free yet; the ring has room in any case.
        EXPECT_TRUE(served.channel.client.canPublish());
        const uint32_t head = served.channel.client.peer().submissionHead.load();
        EXPECT_TRUE(head == 3 || head == 4) << head;
        return head == 4;
      });
}

TEST_F(WorkerInASingleStep, StartsACallBeforeItsFirstInstructionOrNever) {
  killAtEveryInstruction<Served>(
      oneCallWaits,
      [](Served& served) {
        attach(served);
        served.channel.take();
      },
      [](Served& served) {
        if (served.channel.worker.start(4) == Start::kRun) *served.ran = true;
      },
      [](Served& served) {
        expectDecidable(served);
        return served.ran->load();
      });
}

TEST_F(WorkerInASingleStep, NeverRunsACallThatWasTakenBack) {
  killAtEveryInstruction<Served>(
      [] {
        auto served = oneCallWaits();
        EXPECT_TRUE(served->channel.client.recall(4));
        return served;
      },
      [](Served& served) {
        attach(served);
        served.channel.take();
      },
      [](Served& served) {
        if (served.channel.worker.start(4) == Start::kRun) *served.ran = true;
      },
      [](Served& served) {
        expectDecidable(served);
        EXPECT_FALSE(*served.ran);
        return served.channel.client.hasStarted(4);
      });
}

TEST_F(WorkerInASingleStep, CompletesACallWholeOrNotAtAll) {
  for (const bool clientSleeps : {false, true}) {
    const std::vector<std::byte> content = contentOf(4);
    killAtEveryInstruction<Served>(
        [=] {
          auto served = oneCallWaits();
          if (clientSleeps) served->channel.client.announceSleep();
          return served;
        },
        [](Served& served) {
          attach(served);
          served.channel.take();
          served.channel.worker.start(4);
          *served.ran = true;
        },
        [&](Served& served) {
          served.channel.worker.complete(4, CompletionStatus::kValue, payloadWith(content));
        },
        [](Served& served) {
          expectDecidable(served);
          const uint64_t counted = served.channel.client.completedCalls();
          const uint64_t found = served.channel.completionsFound();
          // The call is counted just before it is published, and is not published without
          // being counted.
          EXPECT_TRUE(counted == 3 + found || (found == 0 && counted == 4)) << counted;
          return found == 1;
        });
  }
}

TEST_F(WorkerInASingleStep, GivesAnInputBackOnce) {
  killAtEveryInstruction<Loan>(
      [] { return std::make_unique<Loan>(/*toClient=*/false); },
      [](Loan& loan) { loan.channel.worker.attach(); },
      [](Loan& loan) { returnLease(loan.channel.worker.returns(), loan.lease); },
      [](Loan& loan) {
        EXPECT_TRUE(livenessWordOwnerDied(loan.channel.client.peer()));
        return loan.seen();
      });
}

TEST_F(WorkerInASingleStep, AttachesOnlyIfItsDeathWillBeSeen) {
  killAtEveryInstruction<Served>(
      oneCallWaits, [](Served&) {}, attach,
      [](Served& served) {
        const ClientEnd& client = served.channel.client;
        EXPECT_TRUE(!client.attached() || livenessWordOwnerDied(client.peer()));
        EXPECT_FALSE(client.hasStarted(4));
        return client.attached();
      });
}

TEST_F(WorkerInASingleStep, SleepsWithoutHarmToTheClientsCall) {
  killAtEveryInstruction<Served>([] { return std::make_unique<Served>(0); }, attach,
                                 [](Served& served) {
                                   served.channel.worker.announceSleep();
                                   served.channel.worker.withdrawSleep();
                                 },
                                 [](Served& served) {
                                   served.channel.client.publish(callWith(contentOf(4)));
                                   expectDecidable(served);
                                   return true;
                                 });
}

}  // namespace
}  // namespace isopool::ipc
