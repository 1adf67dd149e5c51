// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ipc/crash_point.h"

/// The steps of the channel's protocol that use shared words: two rings with one writer each, sleep
/// and wake-up, the race of recall and start, the return of a lease. They are templates over the
/// memory that contains the words, so that the code that serves calls (SharedMemory,
/// ipc/channel/layout.h) is the same code that the model checker explores (tests/model, over
/// relacy's atomics).
///
/// Memory has
///   Word<T>             load, store, exchange, fetch_add with an explicit std::memory_order
///   wake(word)          wakes every thread that sleeps on the word
///   reach(CrashPoint)   the process may die here
namespace isopool::ipc {

enum class Received {
  kNothing,
  kOne,
  kPoisoned,  ///< the peer wrote an impossible value: close the channel and kill the peer
};

/// The crash points of a ring's writer. They differ between the two rings of a channel.
struct WriterCrashPoints {
  CrashPoint slotWritten, tailStored, woken;
};

/// The end of a ring that fills slots. For one thread at a time. Never blocks.
template <typename Memory, typename Slot, size_t kSlots>
class RingWriter {
 public:
  using Word = typename Memory::template Word<uint32_t>;
  static_assert((kSlots & (kSlots - 1)) == 0, "or the slots' order breaks where the counts wrap");

  /// Only the writer writes `tail`; only the reader writes `head` and `readerSleeping`. `tail` and
  /// `head` hold `firstCount`.
  RingWriter(std::span<Slot, kSlots> slots, Word& tail, const Word& head,
             const Word& readerSleeping, const WriterCrashPoints& points, uint32_t firstCount = 0)
      : slots_(slots),
        tail_(tail),
        head_(head),
        readerSleeping_(readerSleeping),
        points_(points),
        published_(firstCount),
        knownHead_(firstCount) {}

  /// True if a slot is free. A hostile reader can only make the writer overwrite slots that the
  /// reader has not read, which harms the reader alone. Loads the reader's word only if the last
  /// known value leaves no room: each load waits for the reader's cache.
  bool hasRoom() {
    if (published_ - knownHead_ < kSlots) return true;
    knownHead_ = head_.load(std::memory_order_acquire);
    return published_ - knownHead_ < kSlots;
  }

  /// False if the reader's head is impossible: ahead of the published slots (the reader counts what
  /// was never published), or more than kSlots behind them (it has moved back).
  bool consistent() const { return published_ - head_.load(std::memory_order_acquire) <= kSlots; }

  /// Calls `fill` with the next slot, publishes the slot and wakes the reader if it sleeps.
  /// hasRoom() must be true.
  template <typename Fill>
  void publish(Fill&& fill) {
    fill(slots_[published_ % kSlots]);
    Memory::reach(points_.slotWritten);
    // Partner: RingReader::announceSleep. Either the writer sees that the reader sleeps, or the
    // reader sees the new tail.
    tail_.exchange(++published_, std::memory_order_seq_cst);
    Memory::reach(points_.tailStored);
    if (readerSleeping_.load(std::memory_order_seq_cst) != 0) Memory::wake(tail_);
    Memory::reach(points_.woken);
  }

  /// Number of published slots, free-running.
  uint32_t published() const { return published_; }
  /// The reader's number of consumed slots, free-running. Untrusted: written by the reader.
  uint32_t consumed() const { return head_.load(std::memory_order_acquire); }

 private:
  std::span<Slot, kSlots> slots_;
  Word& tail_;
  const Word& head_;
  const Word& readerSleeping_;
  const WriterCrashPoints points_;
  uint32_t published_;
  uint32_t knownHead_;  // an earlier value of head_, so never ahead of the current one
};

/// The end of a ring that empties slots. For one thread at a time. Never blocks.
template <typename Memory, typename Slot, size_t kSlots>
class RingReader {
 public:
  using Word = typename Memory::template Word<uint32_t>;

  /// Only the writer writes `tail`; only the reader writes `head` and `sleeping`. `firstCount` must
  /// be the writer's.
  RingReader(std::span<const Slot, kSlots> slots, const Word& tail, Word& head, Word& sleeping,
             CrashPoint headStored, uint32_t firstCount = 0)
      : slots_(slots),
        tail_(tail),
        head_(head),
        sleeping_(sleeping),
        headStored_(headStored),
        consumed_(firstCount) {}

  /// True if peek() would find something. Also the second check of sleepUnless(), and therefore
  /// seq_cst: it must not see an older tail than the one that publish() stored before publish() saw
  /// the reader awake.
  bool ready() const { return tail_.load(std::memory_order_seq_cst) != consumed_; }

  /// Calls `copy` with the oldest slot. `copy` must read each value once, check its copy and return
  /// false if the content is impossible. The writer does not reuse the slot until consume().
  template <typename Copy>
  Received peek(Copy&& copy) const {
    const uint32_t tail = tail_.load(std::memory_order_acquire);
    if (tail == consumed_) return Received::kNothing;
    if (tail - consumed_ > kSlots) return Received::kPoisoned;
    return copy(slots_[consumed_ % kSlots]) ? Received::kOne : Received::kPoisoned;
  }

  /// Returns the oldest slot to the writer.
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

  /// Number of consumed slots, free-running. While the tail has this value, the ring is empty.
  uint32_t consumed() const { return consumed_; }

 private:
  std::span<const Slot, kSlots> slots_;
  const Word& tail_;
  Word& head_;
  Word& sleeping_;
  const CrashPoint headStored_;
  uint32_t consumed_;
};

/// Calls `sleep` unless `somethingCame` returns true. `forEachReader` must call its argument with
/// each reader on whose tail `sleep` sleeps.
template <typename ForEachReader, typename SomethingCame, typename Sleep>
void sleepUnless(ForEachReader&& forEachReader, SomethingCame&& somethingCame, Sleep&& sleep) {
  forEachReader([](auto& reader) { reader.announceSleep(); });
  // Partner: RingWriter::publish. A slot that is published after the announcement is published by a
  // writer that sees it; `somethingCame` sees a slot that was published before.
  if (!somethingCame()) sleep();
  forEachReader([](auto& reader) { reader.withdrawSleep(); });
}

/// True if user code of the call may have run an instruction. The answer is final once the worker
/// is dead.
template <typename Memory>
bool mayHaveStarted(const typename Memory::template Word<uint64_t>& started, uint64_t sequence) {
  return started.load(std::memory_order_seq_cst) >= sequence;
}

/// The client withdraws a call. True if the call has not started and never will; false if it may
/// have started. If both sides see the other's store, it is false and the call does not run.
template <typename Memory>
bool recallCall(typename Memory::template Word<uint64_t>& recalled,
                const typename Memory::template Word<uint64_t>& started, uint64_t sequence) {
  // Partner: startCall. Each side stores its own word, then loads the other's: at least one side
  // sees the other's store.
  recalled.exchange(sequence, std::memory_order_seq_cst);
  Memory::reach(CrashPoint::kRecallStored);
  return !mayHaveStarted<Memory>(started, sequence);
}

/// The worker announces that a call's user code runs now. False if the client has withdrawn the
/// call: then the call counts as started, too, but must not run.
template <typename Memory>
bool startCall(typename Memory::template Word<uint64_t>& started,
               const typename Memory::template Word<uint64_t>& recalled, uint64_t sequence) {
  // Partner: recallCall.
  started.exchange(sequence, std::memory_order_seq_cst);
  Memory::reach(CrashPoint::kStartedStored);
  return recalled.load(std::memory_order_seq_cst) != sequence;
}

/// The borrower returns a lease: `returned` is the lease's word, `groupReturns` its group's hint.
template <typename Memory>
void giveBack(typename Memory::template Word<uint32_t>& returned,
              typename Memory::template Word<uint32_t>& groupReturns, uint32_t generation) {
  // Partner: LeaseTable::collect, which loads the hint first.
  returned.store(generation, std::memory_order_release);
  Memory::reach(CrashPoint::kLeaseReturned);
  groupReturns.fetch_add(1, std::memory_order_release);
  Memory::reach(CrashPoint::kLeaseGroupCounted);
}

/// The lender loads the hint: true if a lease of the group may have been returned since the hint
/// was `seen`. Updates `seen`.
template <typename Memory>
bool returnsCounted(const typename Memory::template Word<uint32_t>& groupReturns, uint32_t& seen) {
  const uint32_t count = groupReturns.load(std::memory_order_acquire);
  if (count == seen) return false;
  seen = count;
  return true;
}

/// The lender checks one lease: true if the borrower has returned it, and so neither reads nor
/// writes its block any more.
template <typename Memory>
bool wasGivenBack(const typename Memory::template Word<uint32_t>& returned, uint32_t generation) {
  return returned.load(std::memory_order_acquire) == generation;
}

}  // namespace isopool::ipc
