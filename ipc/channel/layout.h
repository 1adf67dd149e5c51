// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// The layout of a channel's two control segments in shared memory. ipc/README.md shows them and
/// describes the protocol. The process that reads a segment must expect its writer to be dead,
/// stopped or hostile at any moment: a reader copies a value once, checks the copy and uses it.
namespace isopool::ipc {

/// Increase it with every change of this layout, or of a request's body in ipc/channel/operation.h:
/// both sides compare it before anything else.
inline constexpr uint32_t kLayoutVersion = 7;
inline constexpr uint64_t kClientControlMagic = 0x31746e65696c6369;  // "iclient1"
inline constexpr uint64_t kWorkerControlMagic = 0x3172656b726f7769;  // "iworker1"

/// Slots of each ring, and the most calls that may be in flight on one channel.
inline constexpr uint32_t kRingSlots = 32;
/// The longest call or result that fits into a slot; longer ones lie in an arena.
inline constexpr uint32_t kInlineBytes = 1992;
/// The most leases that one side can have given to the other at the same time.
inline constexpr uint32_t kLeases = 4096;
inline constexpr uint32_t kLeaseGroups = 64;
inline constexpr uint32_t kLeasesPerGroup = kLeases / kLeaseGroups;

inline constexpr size_t kCacheLinePair = 128;  // processors fetch neighbouring lines in pairs

/// A word in shared memory. Each has one writing process. Lock-free, so that a process that dies
/// leaves no lock behind.
template <typename T>
using SharedWord = std::atomic<T>;
static_assert(SharedWord<uint32_t>::is_always_lock_free);
static_assert(SharedWord<uint64_t>::is_always_lock_free);

/// Constant once the peer has the segment. The peer checks it before it uses the segment.
struct SegmentHeader {
  uint64_t magic;
  uint32_t layoutVersion;
  uint32_t unused;
  uint64_t epoch;
};

/// Where the payload of a call or a result lies. If `blobBytes` is not 0, it lies in the writer's
/// arena at (blobSegment, blobOffset), and `inlineBytes` is 0. Otherwise it is in the slot.
struct PayloadPlace {
  uint32_t inlineBytes;
  uint32_t blobSegment;
  uint64_t blobOffset;
  uint64_t blobBytes;
};

/// One call. Written by the client before it counts the call in submissionTail; reused when the
/// worker has counted it in submissionHead.
struct alignas(64) SubmissionSlot {
  uint64_t sequence;  ///< number of the call on this channel, from 1
  uint64_t epoch;
  uint32_t operation;  ///< Operation in ipc/channel/operation.h
  uint32_t flags;      ///< SubmissionFlag bits
  PayloadPlace payload;
  std::array<std::byte, kInlineBytes> bytes;
};

/// One answer. Written by the worker before it counts the answer in completionTail; reused when the
/// client has counted it in completionHead.
struct alignas(64) CompletionSlot {
  uint64_t sequence;  ///< of the call that this answers
  uint64_t epoch;
  uint32_t status;           ///< CompletionStatus, perhaps with kInputReportFlag (operation.h)
  uint32_t workNanoseconds;  ///< from taking the call to this answer, or the largest number
  PayloadPlace payload;
  std::array<std::byte, kInlineBytes> bytes;
};

/// Written by the borrower, which returns lease i by storing its generation in `returned[i]`. It
/// then increments `groupReturns[i / kLeasesPerGroup]`, so that the lender need not read all 4096
/// words. That count is only a hint; `returned` decides.
struct LeaseReturns {
  alignas(kCacheLinePair) std::array<SharedWord<uint32_t>, kLeaseGroups> groupReturns;
  alignas(kCacheLinePair) std::array<SharedWord<uint32_t>, kLeases> returned;
};

/// Written by the client only: the segment is sealed after the client has mapped it, so no further
/// writable mapping of it can be made.
struct ClientControl {
  SegmentHeader header;
  /// Number of published calls, free-running. The futex on which an idle worker sleeps.
  alignas(kCacheLinePair) SharedWord<uint32_t> submissionTail;
  /// Number of consumed completions, free-running: the worker may reuse their slots and blobs.
  alignas(kCacheLinePair) SharedWord<uint32_t> completionHead;
  /// 1 while a thread of the client sleeps, or is about to sleep, on completionTail.
  alignas(kCacheLinePair) SharedWord<uint32_t> sleeping;
  /// The processor on which the client spins, for the worker's decision to spin.
  SharedWord<uint32_t> processor;
  /// How long an idle worker may spin, in microseconds; 0 if the client's cores are busy, or if the
  /// client works longer between its calls.
  SharedWord<uint32_t> spinAllowance;
  /// recalled[sequence % kRingSlots] == sequence: the client withdraws that call, unless it has
  /// started already.
  alignas(kCacheLinePair) std::array<SharedWord<uint64_t>, kRingSlots> recalled;
  LeaseReturns outputReturns;
  alignas(kCacheLinePair) std::array<SubmissionSlot, kRingSlots> slots;
};

/// Written by the worker only: the segment is sealed as the client's is.
struct WorkerControl {
  SegmentHeader header;
  /// The liveness word: a robust process-shared mutex that the thread that publishes completions
  /// locks for its whole life. When that thread dies, the kernel stores FUTEX_OWNER_DIED here and
  /// wakes a sleeper: nothing more will be published. See ipc/channel/liveness_word.h.
  alignas(kCacheLinePair) pthread_mutex_t life;
  /// 0 until the worker holds `life` and serves the channel, then 1. A futex.
  alignas(kCacheLinePair) SharedWord<uint32_t> attached;
  /// Number of published completions, free-running. The futex on which a waiting client sleeps.
  alignas(kCacheLinePair) SharedWord<uint32_t> completionTail;
  /// Number of taken calls, free-running: the client may reuse their slots.
  alignas(kCacheLinePair) SharedWord<uint32_t> submissionHead;
  /// The sequence number of the last call whose user code may have run an instruction.
  alignas(kCacheLinePair) SharedWord<uint64_t> startedSequence;
  /// 1 while the worker sleeps, or is about to sleep.
  alignas(kCacheLinePair) SharedWord<uint32_t> sleeping;
  /// The processor on which the worker ran when it published its last completion.
  SharedWord<uint32_t> processor;
  /// Calls completed in this life, without preparations and calls that did not run (Work). For
  /// statistics and the restart policy, never for correctness. On a cache line of its own, because
  /// it changes with every call: beside `sleeping`, which the client reads with every call, each
  /// side would wait for the other side's cache.
  alignas(kCacheLinePair) SharedWord<uint64_t> completedCalls;
  /// Those of them that are no steps (Work): they show that the worker can serve this client. For
  /// the restart policy of shared pools.
  SharedWord<uint64_t> servedCalls;
  /// 1 from the moment before code of the client ran for the first time: of a model, or what its
  /// loading runs. What it left there, as a thread, may end the worker at any later time.
  SharedWord<uint32_t> ranCode;
  /// Number of objects that the client's handles refer to, and bytes of private memory that these
  /// objects keep. For limits and reports.
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
