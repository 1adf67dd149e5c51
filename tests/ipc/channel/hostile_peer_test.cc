// SPDX-License-Identifier: BSD-3-Clause
// How one end handles a control segment that the other end fills with false data.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <memory>
#include <set>

#include "ipc/channel/lease_table.h"
#include "ipc/channel/liveness_word.h"
#include "ipc/channel/spin.h"
#include "tests/ipc/channel/peers.h"
#include "tests/ipc/seed.h"

namespace isopool::ipc {
namespace {

using tests::callWith;
using tests::ChannelMemory;
using tests::contentOf;
using tests::Peer;
using tests::PeerKind;

constexpr base::Epoch kEpoch(5);

class HostilePeer : public testing::Test {
 protected:
  ChannelMemory memory_{ChannelMemory::Views::kCommon};
  ClientEnd client_{kEpoch, memory_.clientOwn(), memory_.clientPeer()};
  WorkerEnd worker_{kEpoch, memory_.workerOwn(), memory_.workerPeer()};
  ReceivedCall call_;
  ReceivedCompletion completion_;
};

TEST_F(HostilePeer, AHeaderOfAnotherKindVersionOrEpochIsNotValid) {
  const SegmentHeader clientHeader = memory_.clientControl().header;
  const SegmentHeader workerHeader = memory_.workerControl().header;
  const auto spoil = [](SegmentHeader header, int field) {
    if (field == 0) header.magic ^= 1;
    if (field == 1) ++header.layoutVersion;
    if (field == 2) header.epoch += 1;
    return header;
  };
  for (int field = 0; field < 3; ++field) {
    memory_.clientControl().header = spoil(clientHeader, field);
    memory_.workerControl().header = spoil(workerHeader, field);
    EXPECT_FALSE(worker_.headerValid()) << field;
    EXPECT_FALSE(client_.headerValid()) << field;
  }
  // Each segment in the other's place.
  memory_.clientControl().header = workerHeader;
  memory_.workerControl().header = clientHeader;
  EXPECT_FALSE(worker_.headerValid());
  EXPECT_FALSE(client_.headerValid());
}

TEST_F(HostilePeer, ATailBeyondTheRingIsPoison) {
  for (const uint32_t tail : {kRingSlots + 1, 0x80000000u, UINT32_MAX}) {
    memory_.workerControl().completionTail = tail;
    EXPECT_EQ(client_.peek(completion_), Received::kPoisoned) << tail;
    EXPECT_TRUE(client_.completionReady()) << "no thread may sleep on it";
    memory_.clientControl().submissionTail = tail;
    EXPECT_EQ(worker_.peek(call_), Received::kPoisoned) << tail;
    EXPECT_TRUE(worker_.callReady());
  }
}

TEST_F(HostilePeer, ATailThatGoesBackIsPoison) {
  client_.publish({});
  client_.publish({});
  ASSERT_EQ(worker_.peek(call_), Received::kOne);
  worker_.taken();
  worker_.complete(1, CompletionStatus::kValue, {});
  ASSERT_EQ(client_.peek(completion_), Received::kOne);
  client_.consumed();
  memory_.clientControl().submissionTail = 0;
  EXPECT_EQ(worker_.peek(call_), Received::kPoisoned);
  memory_.workerControl().completionTail = 0;
  EXPECT_EQ(client_.peek(completion_), Received::kPoisoned);
}

TEST_F(HostilePeer, ASlotOfAnotherEpochIsPoison) {
  client_.publish({});
  memory_.clientControl().slots[0].epoch = kEpoch.value - 1;
  EXPECT_EQ(worker_.peek(call_), Received::kPoisoned);
  worker_.complete(1, CompletionStatus::kValue, {});
  memory_.workerControl().slots[0].epoch = kEpoch.value + 1;
  EXPECT_EQ(client_.peek(completion_), Received::kPoisoned);
}

TEST_F(HostilePeer, ASlotThatClaimsMoreBytesThanItHasIsPoison) {
  client_.publish({});
  worker_.complete(1, CompletionStatus::kValue, {});
  for (const uint32_t bytes : {kInlineBytes + 1, 0x80000000u, UINT32_MAX}) {
    memory_.clientControl().slots[0].payload.inlineBytes = bytes;
    EXPECT_EQ(worker_.peek(call_), Received::kPoisoned) << bytes;
    memory_.workerControl().slots[0].payload.inlineBytes = bytes;
    EXPECT_EQ(client_.peek(completion_), Received::kPoisoned) << bytes;
  }
}

TEST_F(HostilePeer, ATailWithoutASlotIsPoison) {
  memory_.clientControl().submissionTail = 1;
  EXPECT_EQ(worker_.peek(call_), Received::kPoisoned);
  memory_.workerControl().completionTail = 1;
  EXPECT_EQ(client_.peek(completion_), Received::kPoisoned);
}

TEST_F(HostilePeer, AFalseHeadHarmsOnlyTheCallsOfItsSender) {
  for (const uint32_t head : {UINT32_MAX, 0x80000000u, 1u}) {
    memory_.workerControl().submissionHead = head;
    // Either answer is correct; publish() writes into the client's own ring in any case.
    static_cast<void>(client_.canPublish());
    const uint64_t sequence = client_.publish(callWith(contentOf(head)));
    EXPECT_EQ(memory_.clientControl().slots[(sequence - 1) % kRingSlots].sequence, sequence);
  }
}

/// A private copy whose last byte is the last accessible one: the next page is protected.
template <typename Copy>
class GuardedCopy {
 public:
  GuardedCopy() : memory_(reserveAddressSpace(kBytes + kPageBytes)) {
    EXPECT_EQ(::mprotect(memory_.data(), kBytes, PROT_READ | PROT_WRITE), 0);
    value_ = new (memory_.data() + kBytes - sizeof(Copy)) Copy;
  }
  Copy& operator*() { return *value_; }
  Copy* operator->() { return value_; }

 private:
  static constexpr size_t kBytes = roundUpToPages(sizeof(Copy));
  Mapping memory_;
  Copy* value_;
};

/// A process that writes random words into the segment of its side at full speed, and sometimes
/// almost correct data. The other end is in use meanwhile. Memory around the segments and behind
/// the copies is protected, so that an end that trusts false data crashes.
class Scribbler : public HostilePeer {
 protected:
  template <typename Control>
  void scribble(Control& control, SharedWord<uint32_t>& tail,
                const SharedWord<uint32_t>& consumed) {
    constexpr size_t kWords = sizeof(Control) / sizeof(uint32_t);
    auto* words = reinterpret_cast<SharedWord<uint32_t>*>(&control);
    std::mt19937_64 random = tests::seededRandom();
    liar_ = std::make_unique<Peer>(
        PeerKind::kProcess, [&control, &tail, &consumed, words, random]() mutable {
          for (;;) {
            const uint64_t die = random();
            const auto value = static_cast<uint32_t>(random());
            switch (die % 8) {
              case 0:
                tail.store(tail.load() + 1);
                break;
              case 1:
                control.slots[value % kRingSlots].epoch = kEpoch.value;
                control.slots[value % kRingSlots].payload.inlineBytes = kInlineBytes;
                break;
              case 2:
                control.slots[value % kRingSlots].payload.inlineBytes = value % (2 * kInlineBytes);
                break;
              case 3:
                tail.store(consumed.load() + static_cast<uint32_t>(die >> 8) % 3);
                break;
              default:
                words[(die >> 8) % kWords].store(value % 4 == 0 ? value % 64 : value);
            }
          }
        });
  }
  static bool timeIsLeft(int64_t begin) { return monotonicNow() - begin < 1'000'000'000; }

  std::unique_ptr<Peer> liar_;
  size_t received_ = 0;
  size_t poisoned_ = 0;
};

TEST_F(Scribbler, AClientSurvivesItsWorker) {
  WorkerControl& control = memory_.workerControl();
  scribble(control, control.completionTail, memory_.clientControl().completionHead);
  GuardedCopy<ReceivedCompletion> copy;
  LeaseTable leases(control.inputReturns);
  std::multiset<const void*> lent;
  char blocks[16];
  uint64_t sequence = 0;
  for (const int64_t begin = monotonicNow(); timeIsLeft(begin);) {
    switch (client_.peek(*copy)) {
      case Received::kOne:
        ASSERT_LE(copy->payload.inlineBytes, kInlineBytes);
        client_.consumed();
        ++received_;
        break;
      case Received::kPoisoned:
        ++poisoned_;
        break;
      case Received::kNothing:
        break;
    }
    if (client_.canPublish()) sequence = client_.publish(callWith(contentOf(sequence)));
    client_.recall(sequence);
    client_.hasStarted(sequence);
    client_.attached();
    client_.headerValid();
    livenessWordOwnerDied(client_.peer());
    client_.announceSleep();
    const std::array watches{client_.completionWatch(), watchLivenessWord(client_.peer())};
    if (!client_.completionReady()) futexWait(watches, std::chrono::microseconds(1));
    client_.withdrawSleep();
    const void* block = &blocks[sequence % sizeof blocks];
    if (leases.lend(block)) lent.insert(block);
    leases.collect([&](const void* back) {
      const auto found = lent.find(back);
      ASSERT_NE(found, lent.end()) << "was returned without being lent";
      lent.erase(found);
    });
    ASSERT_EQ(leases.outstanding(), lent.size());
  }
  EXPECT_GT(received_, 0u) << "no false data was accepted";
  EXPECT_GT(poisoned_, 0u);
}

TEST_F(Scribbler, AWorkerSurvivesItsClient) {
  ClientControl& control = memory_.clientControl();
  scribble(control, control.submissionTail, memory_.workerControl().submissionHead);
  GuardedCopy<ReceivedCall> copy;
  for (const int64_t begin = monotonicNow(); timeIsLeft(begin);) {
    switch (worker_.peek(*copy)) {
      case Received::kOne:
        ASSERT_LE(copy->payload.inlineBytes, kInlineBytes);
        worker_.taken();
        worker_.start(copy->sequence);
        worker_.complete(copy->sequence, CompletionStatus::kValue, {});
        ++received_;
        break;
      case Received::kPoisoned:
        ++poisoned_;
        break;
      case Received::kNothing:
        break;
    }
    worker_.headerValid();
    worker_.completionsConsumed();
    ASSERT_LE(worker_.spinAllowance(), kLongestSpin);
    ASSERT_GE(worker_.spinAllowance(), 0);
  }
  EXPECT_GT(received_, 0u) << "no false data was accepted";
  EXPECT_GT(poisoned_, 0u);
}

}  // namespace
}  // namespace isopool::ipc
