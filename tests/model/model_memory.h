// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <source_location>
#include <span>

#include "ipc/channel/await_outcome.h"
#include "ipc/channel/ring.h"

// clang-format off
// Not relacy.hpp, which defines macros named like POSIX functions and new. The order is relacy's.
#include <relacy/base.hpp>
#include <relacy/context.hpp>
#include <relacy/context_base_impl.hpp>
#include <relacy/backoff.hpp>
#include <relacy/atomic_fence.hpp>
#include <relacy/atomic.hpp>
#include <relacy/var.hpp>
#include <relacy/thread_local.hpp>
#include <relacy/test_suite.hpp>
#include <relacy/dyn_thread.hpp>
#include <relacy/stdlib/mutex.hpp>
#include <relacy/stdlib/condition_variable.hpp>
#include <relacy/stdlib/semaphore.hpp>
#include <relacy/stdlib/event.hpp>
// clang-format on
#undef $

/// The memory over which the model checker explores ipc/channel/ring.h: relacy's atomics, and a
/// model kernel with futexes and deaths of processes.
namespace isopool::model {

using ipc::CrashPoint;

/// Deliberate mistakes, which the checker must find.
enum class Flaw {
  kNone,
  kStoresReleaseNothing,
  kAdditionsReleaseNothing,
  kExchangesReleaseNothing,
  kLoadsAcquireNothing,
  kNoTotalOrder,  ///< seq_cst is release and acquire
};

inline rl::debug_info where(const std::source_location& location) {
  return {location.function_name(), location.file_name(), location.line()};
}

/// Plain data: two unordered accesses, one of them a write, are a finding.
template <typename T>
class Plain {
 public:
  Plain() { value_(where(std::source_location::current())) = T(); }
  void write(T value, std::source_location at = std::source_location::current()) {
    value_(where(at)) = value;
  }
  T read(std::source_location at = std::source_location::current()) const {
    return value_(where(at));
  }

 private:
  rl::var<T> value_;
};

/// Thrown at the crash point at which a process dies.
struct ProcessDied {};

/// A word as ring.h requires it. Findings name the line that used the word.
template <typename T, Flaw flaw>
class ModelWord {
 public:
  explicit ModelWord(T value = T()) {
    word_.store(value, rl::mo_relaxed, where(std::source_location::current()));
  }

  T load(std::memory_order order, std::source_location at = std::source_location::current()) const {
    return word_.load(order == std::memory_order::relaxed ? rl::mo_relaxed : loadOrder(order),
                      where(at));
  }
  void store(T value, std::memory_order order,
             std::source_location at = std::source_location::current()) {
    const bool releases =
        order != std::memory_order::relaxed && flaw != Flaw::kStoresReleaseNothing;
    word_.store(value, releases ? rl::mo_release : rl::mo_relaxed, where(at));
  }
  T exchange(T value, std::memory_order order,
             std::source_location at = std::source_location::current()) {
    RL_ASSERT(order == std::memory_order::seq_cst);
    return word_.exchange(value, exchangeOrder(), where(at));
  }
  T fetch_add(T value, std::memory_order order,
              std::source_location at = std::source_location::current()) {
    RL_ASSERT(order == std::memory_order::release);
    const bool releases = flaw != Flaw::kAdditionsReleaseNothing;
    return word_.fetch_add(value, releases ? rl::mo_release : rl::mo_relaxed, where(at));
  }

 private:
  static constexpr rl::memory_order loadOrder(std::memory_order order) {
    if (flaw == Flaw::kLoadsAcquireNothing) return rl::mo_relaxed;
    const bool inTotalOrder = order == std::memory_order::seq_cst && flaw != Flaw::kNoTotalOrder;
    return inTotalOrder ? rl::mo_seq_cst : rl::mo_acquire;
  }
  static constexpr rl::memory_order exchangeOrder() {
    if (flaw == Flaw::kNoTotalOrder) return rl::mo_acq_rel;
    return flaw == Flaw::kExchangesReleaseNothing ? rl::mo_acquire : rl::mo_seq_cst;
  }

  rl::atomic<T> word_;
};

/// The kernel's part in a wait: it compares and sleeps, or wakes, under one lock. Words are
/// identified by their addresses. Sleepers have no deadline: a sleeper that is not woken is
/// a deadlock.
class ModelKernel {
 public:
  static constexpr int kThreads = 4;

  template <typename Word>
  struct Watch {
    const Word* word;
    uint32_t expected;
  };

  template <typename Word>
  void sleep(std::initializer_list<Watch<Word>> watches) {
    rl::context& context = rl::ctx();
    rl::preemption_disabler locked(context);
    takeLock();
    for (const auto& [word, expected] : watches) {
      if (word->load(std::memory_order::relaxed) != expected) return;
    }
    Sleeper& sleeper = sleepers_[rl::thread_index()];
    sleeper.count = 0;
    for (const auto& watch : watches) sleeper.words[sleeper.count++] = watch.word;
    sleeper.asleep = true;
    context.park_current_thread(false, false, false, where(std::source_location::current()));
    sleepers_[rl::thread_index()].asleep = false;
    takeLock();
  }

  void wake(const void* word) {
    rl::context& context = rl::ctx();
    context.sched();
    rl::preemption_disabler locked(context);
    takeLock();
    for (int thread = 0; thread < kThreads; ++thread) {
      Sleeper& sleeper = sleepers_[thread];
      if (!sleeper.asleep || !sleeper.watches(word)) continue;
      sleeper.asleep = false;
      context.unpark_thread(thread, false, where(std::source_location::current()));
    }
  }

 private:
  struct Sleeper {
    bool asleep = false;
    int count = 0;
    std::array<const void*, 4> words{};
    bool watches(const void* word) const {
      for (int i = 0; i < count; ++i) {
        if (words[i] == word) return true;
      }
      return false;
    }
  };

  // A thread that takes the lock sees what earlier holders wrote before they took it.
  void takeLock() { lock_.fetch_add(1, rl::mo_acq_rel, where(std::source_location::current())); }

  rl::atomic<uint32_t> lock_{0};
  std::array<Sleeper, kThreads> sleepers_{};
};

/// The execution that is explored. The checker creates a new one for each execution, one at a time.
struct Execution {
  ModelKernel kernel;
  /// Threads that may die, and those that did.
  std::array<bool, ModelKernel::kThreads> mortal{};
  std::array<bool, ModelKernel::kThreads> dead{};

  Execution() { current = this; }
  static inline Execution* current = nullptr;
};

/// Runs `body` as a process that may die at any crash point that it reaches. Then `died` runs, as
/// the kernel's part.
template <typename Body, typename Died>
void runMortal(Body&& body, Died&& died) {
  Execution& execution = *Execution::current;
  const unsigned thread = rl::thread_index();
  execution.mortal[thread] = true;
  try {
    body();
  } catch (const ProcessDied&) {
    execution.dead[thread] = true;
  }
  execution.mortal[thread] = false;
  if (execution.dead[thread]) died();
}

template <Flaw flaw = Flaw::kNone>
struct ModelMemory {
  template <typename T>
  using Word = ModelWord<T, flaw>;
  using Watch = ModelKernel::Watch<Word<uint32_t>>;

  static void wake(const Word<uint32_t>& word) { Execution::current->kernel.wake(&word); }
  static void sleep(std::initializer_list<Watch> watches) {
    Execution::current->kernel.sleep<Word<uint32_t>>(watches);
  }
  static void reach(CrashPoint) {
    if (!Execution::current->mortal[rl::thread_index()]) return;
    if (rl::rand(2) == 1) throw ProcessDied{};
  }
};

/// Ring words and slots, as the two segments of a channel hold them for one direction.
template <typename Memory, size_t kSlots>
struct Ring {
  /// An item in two halves, so that a torn item is detected.
  struct Slot {
    Plain<uint64_t> number;
    Plain<uint64_t> numberAgain;
  };
  using Word = typename Memory::template Word<uint32_t>;
  using Writer = ipc::RingWriter<Memory, Slot, kSlots>;
  using Reader = ipc::RingReader<Memory, Slot, kSlots>;

  explicit Ring(uint32_t firstCount = 0)
      : tail(firstCount),
        head(firstCount),
        writer(slots, tail, head, readerSleeping,
               {CrashPoint::kSubmissionSlotWritten, CrashPoint::kSubmissionTailStored,
                CrashPoint::kSubmissionWoken},
               firstCount),
        reader(std::span<const Slot, kSlots>(slots), tail, head, readerSleeping,
               CrashPoint::kSubmissionHeadStored, firstCount) {}

  void publish(uint64_t number) {
    writer.publish([number](Slot& slot) {
      slot.number.write(number);
      slot.numberAgain.write(number);
    });
  }
  /// Consumes and returns the oldest item; nothing if the ring is empty.
  std::optional<uint64_t> take() {
    uint64_t number = 0;
    uint64_t again = 0;
    const ipc::Received received = reader.peek([&](const Slot& slot) {
      number = slot.number.read();
      again = slot.numberAgain.read();
      return true;
    });
    if (received == ipc::Received::kNothing) return std::nullopt;
    RL_ASSERT(received == ipc::Received::kOne);
    RL_ASSERT(number == again);
    Memory::reach(CrashPoint::kSubmissionCopied);
    reader.consume();
    return number;
  }

  Word tail;
  Word head;
  Word readerSleeping;
  Slot slots[kSlots];
  Writer writer;
  Reader reader;
};

}  // namespace isopool::model
