// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// The two control segments of a channel as they lie in shared memory. ipc/README.md draws them and
/// tells the protocol. Everything here is read by a process that must expect the writer to be dead,
/// stopped or hostile at any moment: a reader copies a value once and uses the copy.
namespace isopool::ipc {

/// Goes up with every change of this file: both sides compare it before anything else.
inline constexpr uint32_t kLayoutVersion = 4;
inline constexpr uint64_t kClientControlMagic = 0x31746e65696c6369;  // "iclient1"
inline constexpr uint64_t kWorkerControlMagic = 0x3172656b726f7769;  // "iworker1"

/// Slots of each ring, and the calls that may be in flight on one channel.
inline constexpr uint32_t kRingSlots = 32;
/// Bytes of a call or a result that travel in the slot itself; what is longer lies in an arena.
inline constexpr uint32_t kInlineBytes = 1992;
/// Blocks that one side can have lent to the other at the same time.
inline constexpr uint32_t kLeases = 4096;
inline constexpr uint32_t kLeaseGroups = 64;
inline constexpr uint32_t kLeasesPerGroup = kLeases / kLeaseGroups;

inline constexpr size_t kCacheLinePair = 128;  // neighbours are fetched in pairs

template <typename T>
using SharedWord = std::atomic<T>;
static_assert(SharedWord<uint32_t>::is_always_lock_free);
static_assert(SharedWord<uint64_t>::is_always_lock_free);

/// Immutable once the segment is introduced.
struct SegmentHeader {
  uint64_t magic;
  uint32_t layoutVersion;
  uint32_t unused;
  uint64_t epoch;
};

/// What a call or result carries besides its bytes. `blobBytes` != 0: the payload lies in the
/// writer's arena at (blobSegment, blobOffset) and `inlineBytes` is 0.
struct PayloadPlace {
  uint32_t inlineBytes;
  uint32_t blobSegment;
  uint64_t blobOffset;
  uint64_t blobBytes;
};

struct alignas(64) SubmissionSlot {
  uint64_t sequence;  ///< index of the call on this channel, from 1
  uint64_t epoch;
  uint32_t operation;  ///< Operation in ipc/channel/operation.h
  uint32_t flags;      ///< SubmissionFlag bits
  PayloadPlace payload;
  std::array<std::byte, kInlineBytes> bytes;
};

struct alignas(64) CompletionSlot {
  uint64_t sequence;  ///< of the call that this answers
  uint64_t epoch;
  uint32_t status;  ///< CompletionStatus in ipc/channel/operation.h
  uint32_t unused;
  PayloadPlace payload;
  std::array<std::byte, kInlineBytes> bytes;
};

/// The borrower's words by which it gives blocks back: `returned[i]` becomes the generation of
/// lease i. `groupReturns[i / kLeasesPerGroup]` goes up after it, so that the lender need not look
/// at 4096 words; it is a hint, the truth is in `returned`.
struct LeaseReturns {
  alignas(kCacheLinePair) std::array<SharedWord<uint32_t>, kLeaseGroups> groupReturns;
  alignas(kCacheLinePair) std::array<SharedWord<uint32_t>, kLeases> returned;
};

/// Written by the client only (its mapping is the last writable one there will ever be).
struct ClientControl {
  SegmentHeader header;
  /// Calls published, a free-running count and the futex that an idle worker sleeps on.
  alignas(kCacheLinePair) SharedWord<uint32_t> submissionTail;
  /// Completions consumed: slots and blobs before it may be reused by the worker.
  alignas(kCacheLinePair) SharedWord<uint32_t> completionHead;
  /// 1 while a thread of the client sleeps, or is about to sleep, on completionTail.
  alignas(kCacheLinePair) SharedWord<uint32_t> sleeping;
  /// The processor on which the client spins, for the worker's decision to spin.
  SharedWord<uint32_t> processor;
  /// For how long an idle worker may spin, in microseconds; 0 when the client's cores are busy.
  SharedWord<uint32_t> spinAllowance;
  /// recalled[s] == sequence: the client takes that call back if it has not started.
  alignas(kCacheLinePair) std::array<SharedWord<uint64_t>, kRingSlots> recalled;
  LeaseReturns outputReturns;
  alignas(kCacheLinePair) std::array<SubmissionSlot, kRingSlots> slots;
};

/// Written by the worker only.
struct WorkerControl {
  SegmentHeader header;
  /// A robust process-shared mutex, locked for life by the thread that publishes completions. When
  /// it dies the kernel stores FUTEX_OWNER_DIED here and wakes a sleeper: nothing more will be
  /// published. See ipc/channel/liveness_word.h.
  alignas(kCacheLinePair) pthread_mutex_t life;
  /// 0 until the worker holds `life` and serves the channel, then 1. A futex.
  alignas(kCacheLinePair) SharedWord<uint32_t> attached;
  /// Completions published, a free-running count and the futex that a waiting client sleeps on.
  alignas(kCacheLinePair) SharedWord<uint32_t> completionTail;
  /// Calls taken over: their slots may be reused by the client.
  alignas(kCacheLinePair) SharedWord<uint32_t> submissionHead;
  /// The last call of which user code may have run an instruction.
  alignas(kCacheLinePair) SharedWord<uint64_t> startedSequence;
  /// 1 while the worker sleeps, or is about to sleep.
  alignas(kCacheLinePair) SharedWord<uint32_t> sleeping;
  SharedWord<uint32_t> processor;
  /// Calls completed in this life, preparations left out (Work). For statistics and the restart
  /// policy, never for correctness. It changes with every call: beside `sleeping`, at which the
  /// client looks with every call, it would have both wait for the other's cache.
  alignas(kCacheLinePair) SharedWord<uint64_t> completedCalls;
  /// Objects that the client's handles refer to, and the private memory that they keep. For limits
  /// and reports.
  alignas(kCacheLinePair) SharedWord<uint64_t> handles;
  SharedWord<uint64_t> handleBytes;
  LeaseReturns inputReturns;
  alignas(kCacheLinePair) std::array<CompletionSlot, kRingSlots> slots;
};

static_assert(std::is_standard_layout_v<ClientControl> && std::is_standard_layout_v<WorkerControl>);
static_assert(sizeof(SubmissionSlot) == 2048 && sizeof(CompletionSlot) == 2048);
static_assert(std::is_trivially_copyable_v<SubmissionSlot>);
static_assert(std::is_trivially_copyable_v<CompletionSlot>);

constexpr size_t controlBytes(size_t structBytes) { return (structBytes + 4095) / 4096 * 4096; }
inline constexpr size_t kClientControlBytes = controlBytes(sizeof(ClientControl));
inline constexpr size_t kWorkerControlBytes = controlBytes(sizeof(WorkerControl));

}  // namespace isopool::ipc
