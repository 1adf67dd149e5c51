// SPDX-License-Identifier: BSD-3-Clause
// Both ends of a channel over control segments with arbitrary content. The input is a program: each
// step is a regular act of one end, or writes false data into a segment.
#include <array>
#include <cstddef>
#include <memory>
#include <set>

#include "ipc/channel/client_end.h"
#include "ipc/channel/lease_table.h"
#include "ipc/channel/liveness_word.h"
#include "ipc/channel/spin.h"
#include "ipc/channel/worker_end.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/guarded_memory.h"

namespace isopool::fuzz {
namespace {

using ipc::Received;

constexpr base::Epoch kEpoch(5);

enum class Step : uint8_t {
  kPublish,
  kTake,
  kStart,
  kComplete,
  kConsume,
  kRecall,
  kLend,
  kCollect,
  kGiveBack,
  kSleep,
  kLookAround,
  kSpoilClientWord,
  kSpoilWorkerWord,
  kSpoilTails,
  kSpoilSubmission,
  kSpoilCompletion,
  kCount,
};

/// A copy whose last byte is the last accessible one.
template <typename Copy>
class GuardedCopy {
 public:
  Copy& operator*() { return *value_; }
  Copy* operator->() { return value_; }

 private:
  GuardedMemory memory_{sizeof(Copy)};
  Copy* value_ = new (memory_.data() + memory_.bytes() - sizeof(Copy)) Copy;
};

/// Kept for all inputs: creating it takes longer than using it.
struct Memory {
  GuardedMemory client{ipc::kClientControlBytes};
  GuardedMemory worker{ipc::kWorkerControlBytes};
  GuardedCopy<ipc::ReceivedCall> call;
  GuardedCopy<ipc::ReceivedCompletion> completion;
  std::array<std::byte, ipc::kInlineBytes> content{};
};

class Conversation {
 public:
  explicit Conversation(Memory& memory)
      : memory_(memory),
        clientControl_(*reinterpret_cast<ipc::ClientControl*>(memory.client.data())),
        workerControl_(*reinterpret_cast<ipc::WorkerControl*>(memory.worker.data())),
        client_(kEpoch, memory.client.view(), memory.worker.view()),
        worker_(kEpoch, memory.worker.view(), memory.client.view()),
        leases_(workerControl_.inputReturns) {}

  void step(InputReader& input) {
    switch (static_cast<Step>(input.take<uint8_t>() % static_cast<uint8_t>(Step::kCount))) {
      case Step::kPublish: {
        ipc::OutgoingCall call;
        call.payload.inlineBytes = contentOf(input);
        if (client_.canPublish()) published_ = client_.publish(call);
        return;
      }
      case Step::kTake:
        if (worker_.peek(*memory_.call) != Received::kOne) return;
        require(memory_.call->payload.inlineBytes <= ipc::kInlineBytes, "a call fits into a slot");
        worker_.taken();
        return;
      case Step::kStart:
        worker_.start(memory_.call->sequence);
        return;
      case Step::kComplete: {
        ipc::OutgoingPayload payload;
        payload.inlineBytes = contentOf(input);
        // Like the worker, which never has more unread answers than slots.
        if (worker_.completionsPublished() - worker_.completionsConsumed() < ipc::kRingSlots) {
          worker_.complete(memory_.call->sequence, ipc::CompletionStatus::kValue, payload);
        }
        return;
      }
      case Step::kConsume:
        if (client_.peek(*memory_.completion) != Received::kOne) return;
        require(memory_.completion->payload.inlineBytes <= ipc::kInlineBytes,
                "an answer fits into a slot");
        client_.consumed();
        return;
      case Step::kRecall:
        client_.recall(input.take<uint64_t>() % 2 == 0 ? published_ : input.take<uint64_t>());
        return;
      case Step::kLend: {
        const void* block = &memory_.content[input.take<uint8_t>()];
        if (const auto lease = leases_.lend(block)) {
          lent_.insert(block);
          lastLease_ = *lease;
        }
        return;
      }
      case Step::kCollect:
        leases_.collect([&](const void* block) {
          const auto found = lent_.find(block);
          require(found != lent_.end(), "a returned block was lent");
          lent_.erase(found);
        });
        require(leases_.outstanding() == lent_.size(), "every lease is out or was returned once");
        return;
      case Step::kGiveBack: {
        const auto delta = input.take<uint32_t>();
        ipc::returnLease(worker_.returns(),
                         {lastLease_.index + delta % 3, lastLease_.generation + (delta >> 8) % 3});
        return;
      }
      case Step::kSleep: {
        client_.announceSleep();
        const std::array watches{client_.completionWatch(), ipc::watchLivenessWord(client_.peer())};
        if (!client_.completionReady()) ipc::futexWait(watches, std::chrono::nanoseconds(1));
        client_.withdrawSleep();
        return;
      }
      case Step::kLookAround:
        client_.attached();
        client_.headerValid();
        worker_.headerValid();
        client_.hasStarted(published_);
        ipc::livenessWordOwnerDied(client_.peer());
        require(worker_.spinAllowance() >= 0 && worker_.spinAllowance() <= ipc::kLongestSpin,
                "no client makes a worker spin long");
        return;
      case Step::kSpoilClientWord:
        return spoilWord(clientControl_, input);
      case Step::kSpoilWorkerWord:
        return spoilWord(workerControl_, input);
      case Step::kSpoilTails: {
        const auto delta = input.take<int8_t>();
        if (delta % 2 == 0) {
          clientControl_.submissionTail = workerControl_.submissionHead + delta / 2;
        } else {
          workerControl_.completionTail = clientControl_.completionHead + delta / 2;
        }
        return;
      }
      case Step::kSpoilSubmission:
        return spoilSlot(clientControl_.slots, input);
      case Step::kSpoilCompletion:
        return spoilSlot(workerControl_.slots, input);
      case Step::kCount:
        return;
    }
  }

 private:
  std::span<const std::byte> contentOf(InputReader& input) {
    return std::span(memory_.content).first(input.take<uint16_t>() % (ipc::kInlineBytes + 1));
  }

  template <typename Control>
  static void spoilWord(Control& control, InputReader& input) {
    const size_t index = input.take<uint32_t>() % (sizeof control / sizeof(uint32_t));
    const auto value = input.take<uint32_t>();
    std::memcpy(reinterpret_cast<std::byte*>(&control) + index * sizeof value, &value,
                sizeof value);
  }

  // Sets all fields that are checked, so that a false value in one field is not hidden by another.
  template <typename Slots>
  static void spoilSlot(Slots& slots, InputReader& input) {
    auto& slot = slots[input.take<uint8_t>() % ipc::kRingSlots];
    slot.epoch = kEpoch.value;
    slot.sequence = input.take<uint8_t>();
    slot.payload.inlineBytes = input.take<uint16_t>();
    slot.payload.blobBytes = input.take<uint16_t>();
  }

  Memory& memory_;
  ipc::ClientControl& clientControl_;
  ipc::WorkerControl& workerControl_;
  ipc::ClientEnd client_;
  ipc::WorkerEnd worker_;
  ipc::LeaseTable leases_;
  ipc::Lease lastLease_;
  std::multiset<const void*> lent_;
  uint64_t published_ = 0;
};

}  // namespace
}  // namespace isopool::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isopool::fuzz;
  static Memory memory;
  memory.client.clear();
  memory.worker.clear();
  *memory.call = {};
  const auto conversation = std::make_unique<Conversation>(memory);
  for (InputReader input(data, size); !input.empty();) conversation->step(input);
  return 0;
}
