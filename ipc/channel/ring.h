// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/crash_point.h"

/// The steps of the channel's protocol that touch shared words: two rings with one writer each,
/// sleep and wake, the race of recall and start, the return of a lease. They are templates over the
/// memory in which the words lie, so that the code that serves calls (SharedMemory,
/// ipc/channel/layout.h) is the code that the model checker explores (tests/model, over relacy's
/// atomics).
///
/// Memory has
///   Word<T>             load, store, exchange, fetch_add with an explicit std::memory_order
///   wake(word)          wakes every sleeper on the word
///   reach(CrashPoint)   the process may die here
namespace isopool::ipc {

enum class Received {
  kNothing,
  kOne,
  kPoisoned,  ///< what the peer wrote can't be: the channel is to be given up, the peer killed
};

/// Where a ring's writer may die: which of the two rings of a channel it is.
struct WriterCrashPoints {
  CrashPoint slotWritten, tailStored, woken;
};

/// The end of a ring that fills slots. One thread. Never blocks.
template <typename Memory, typename Slot, size_t kSlots>
class RingWriter {
 public:
  using Word = typename Memory::template Word<uint32_t>;
  static_assert((kSlots & (kSlots - 1)) == 0, "or the slots' order breaks where the counts wrap");

  /// `tail` is the writer's own, the others are the reader's. Both words of counts hold
  /// `firstCount`.
  RingWriter(std::span<Slot, kSlots> slots, Word& tail, const Word& head,
             const Word& readerSleeping, const WriterCrashPoints& points, uint32_t firstCount = 0)
      : slots_(slots),
        tail_(tail),
        head_(head),
        readerSleeping_(readerSleeping),
        points_(points),
        published_(firstCount),
        knownHead_(firstCount) {}

  /// A hostile head can only make us overwrite slots that the reader has not read: its own loss.
  /// Looks at the reader's word only if there was no room when it last did: each look waits for the
  /// reader's cache.
  bool hasRoom() {
    if (published_ - knownHead_ < kSlots) return true;
    knownHead_ = head_.load(std::memory_order_acquire);
    return published_ - knownHead_ < kSlots;
  }

  /// False if the reader says that it has read what was never published, or takes it back.
  bool consistent() const { return published_ - head_.load(std::memory_order_acquire) <= kSlots; }

  /// Lets `fill` write the next slot, publishes it and wakes the reader if it sleeps. There must be
  /// room.
  template <typename Fill>
  void publish(Fill&& fill) {
    fill(slots_[published_ % kSlots]);
    Memory::reach(points_.slotWritten);
    // Partner: RingReader::announceSleep. Either we see that it sleeps or it sees the new tail.
    tail_.exchange(++published_, std::memory_order_seq_cst);
    Memory::reach(points_.tailStored);
    if (readerSleeping_.load(std::memory_order_seq_cst) != 0) Memory::wake(tail_);
    Memory::reach(points_.woken);
  }

  uint32_t published() const { return published_; }
  /// Slots that the reader says it has done with, free-running.
  uint32_t consumed() const { return head_.load(std::memory_order_acquire); }

 private:
  std::span<Slot, kSlots> slots_;
  Word& tail_;
  const Word& head_;
  const Word& readerSleeping_;
  const WriterCrashPoints points_;
  uint32_t published_;
  uint32_t knownHead_;  // as it was some time ago, so never more than it is
};

/// The end of a ring that empties slots. One thread. Never blocks.
template <typename Memory, typename Slot, size_t kSlots>
class RingReader {
 public:
  using Word = typename Memory::template Word<uint32_t>;

  /// `tail` is the writer's, `head` and `sleeping` are the reader's own. `firstCount` is the
  /// writer's.
  RingReader(std::span<const Slot, kSlots> slots, const Word& tail, Word& head, Word& sleeping,
             CrashPoint headStored, uint32_t firstCount = 0)
      : slots_(slots),
        tail_(tail),
        head_(head),
        sleeping_(sleeping),
        headStored_(headStored),
        consumed_(firstCount) {}

  /// Also the second look of sleepUnless(), which must not see an older tail than publish() stored
  /// before it saw us awake.
  bool ready() const { return tail_.load(std::memory_order_seq_cst) != consumed_; }

  /// Lets `copy` take the oldest slot's content, which it does once, and say whether it can be. The
  /// slot stays the reader's until consume().
  template <typename Copy>
  Received peek(Copy&& copy) const {
    const uint32_t tail = tail_.load(std::memory_order_acquire);
    if (tail == consumed_) return Received::kNothing;
    if (tail - consumed_ > kSlots) return Received::kPoisoned;
    return copy(slots_[consumed_ % kSlots]) ? Received::kOne : Received::kPoisoned;
  }

  /// Gives the oldest slot back.
  void consume() {
    head_.store(++consumed_, std::memory_order_release);
    Memory::reach(headStored_);
  }

  /// The first and the last step of sleepUnless().
  void announceSleep() {
    // Partner: RingWriter::publish.
    sleeping_.exchange(1, std::memory_order_seq_cst);
    Memory::reach(CrashPoint::kSleepAnnounced);
  }
  void withdrawSleep() {
    sleeping_.store(0, std::memory_order_relaxed);
    Memory::reach(CrashPoint::kSleepWithdrawn);
  }

  /// The value of the tail at which there is nothing to read.
  uint32_t consumed() const { return consumed_; }

 private:
  std::span<const Slot, kSlots> slots_;
  const Word& tail_;
  Word& head_;
  Word& sleeping_;
  const CrashPoint headStored_;
  uint32_t consumed_;
};

/// Sleeps where calls or completions come in, unless `somethingCame`. `forEachReader` calls what it
/// is given with each reader of which the tail wakes `sleep`.
template <typename ForEachReader, typename SomethingCame, typename Sleep>
void sleepUnless(ForEachReader&& forEachReader, SomethingCame&& somethingCame, Sleep&& sleep) {
  forEachReader([](auto& reader) { reader.announceSleep(); });
  // Partner: RingWriter::publish. What is published after this sees that we sleep; what was before,
  // we see.
  if (!somethingCame()) sleep();
  forEachReader([](auto& reader) { reader.withdrawSleep(); });
}

/// True if user code of the call may have run an instruction; once the worker is dead, the last
/// word.
template <typename Memory>
bool mayHaveStarted(const typename Memory::template Word<uint64_t>& started, uint64_t sequence) {
  return started.load(std::memory_order_seq_cst) >= sequence;
}

/// The client takes a call back. True if it certainly has not started and never will; false if it
/// may have.
template <typename Memory>
bool recallCall(typename Memory::template Word<uint64_t>& recalled,
                const typename Memory::template Word<uint64_t>& started, uint64_t sequence) {
  // Partner: startCall. At least one side sees the other's word.
  recalled.exchange(sequence, std::memory_order_seq_cst);
  Memory::reach(CrashPoint::kRecallStored);
  return !mayHaveStarted<Memory>(started, sequence);
}

/// The worker announces that a call's user code runs now. False if the client took the call back:
/// it counts as started then too, but must not run.
template <typename Memory>
bool startCall(typename Memory::template Word<uint64_t>& started,
               const typename Memory::template Word<uint64_t>& recalled, uint64_t sequence) {
  // Partner: recallCall.
  started.exchange(sequence, std::memory_order_seq_cst);
  Memory::reach(CrashPoint::kStartedStored);
  return recalled.load(std::memory_order_seq_cst) != sequence;
}

/// The borrower ends a loan: `returned` is the lease's word, `groupReturns` a hint beside it.
template <typename Memory>
void giveBack(typename Memory::template Word<uint32_t>& returned,
              typename Memory::template Word<uint32_t>& groupReturns, uint32_t generation) {
  // Partner: LeaseTable::collect, which looks at the hint first.
  returned.store(generation, std::memory_order_release);
  Memory::reach(CrashPoint::kLeaseReturned);
  groupReturns.fetch_add(1, std::memory_order_release);
  Memory::reach(CrashPoint::kLeaseGroupCounted);
}

/// The lender looks at the hint: true if something may have come back since it was `seen`.
template <typename Memory>
bool returnsCounted(const typename Memory::template Word<uint32_t>& groupReturns, uint32_t& seen) {
  const uint32_t count = groupReturns.load(std::memory_order_acquire);
  if (count == seen) return false;
  seen = count;
  return true;
}

/// True if the borrower can neither read nor write the block of this lease any more.
template <typename Memory>
bool wasGivenBack(const typename Memory::template Word<uint32_t>& returned, uint32_t generation) {
  return returned.load(std::memory_order_acquire) == generation;
}

}  // namespace isopool::ipc
