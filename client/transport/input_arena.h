// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "ipc/memory/page_arena.h"
#include "ipc/tensor/routing_allocator.h"

namespace isopool::client {

/// Observer of the arena's segments: a connection to a supervisor. All members are called under a
/// lock of the arena: they must not block and must not use the arena.
class SegmentAudience {
 public:
  virtual ~SegmentAudience() = default;
  /// Called by the thread that allocates or that adds the audience. `object` is valid during the
  /// call only; `bytes` is its size. If it throws, it must have had no effect: it is called again
  /// before a block is used.
  virtual void segmentAdded(base::SegmentId id, const base::Fd& object, size_t bytes) = 0;
  /// The arena has no longer a segment that it has added, and holds no reference to a block of it.
  /// The audience calls InputArena::segmentReleased() when no process that it told of the segment
  /// maps it any more; until then the number is not used again. If it throws, it must have had no
  /// effect: it is called again later.
  virtual void segmentRetired(base::SegmentId id) = 0;
  /// The memory that the supervisor lets this process hold, with packages and results; 0: no limit.
  virtual uint64_t memoryLimit() const = 0;
  /// The program wants free memory to go back to the system: the workers' memory, too. May throw
  /// std::bad_alloc.
  virtual void trimIsWanted() = 0;
  /// There is memory that may go back to the system when it stays free: the audience calls
  /// InputArena::trimIdle() after InputArena::kIdleTime, on a thread of its own.
  virtual void trimIsDue() noexcept = 0;
};

/// Lends blocks of the arena: a link to a worker.
class BlockLender {
 public:
  virtual ~BlockLender() = default;
  /// Ends the references of what the borrower has returned and of calls that it did not run.
  /// Returns true if something is still lent. Any thread.
  virtual bool reclaim() noexcept = 0;
};

/// Why the arena has no block.
struct NoBlock {
  /// False if it does not help to wait until tensors are released: the block is larger than the
  /// limit, or a limit of the system or of the process was met, such as that of descriptors.
  bool waitingHelps = true;
  std::string text;  ///< the cause, with figures, and what to do about it
};

/// This process's memory for tensors that are passed to workers: one arena for all managers, mapped
/// by every worker that the process may call. So a tensor that was created before its worker was
/// chosen is passed without a copy. The process itself creates the segments by which the arena
/// grows, up to ISOPOOL_INPUT_ARENA_LIMIT. A block above PageArena::kLargestSmallBlock gets a
/// segment of its own.
///
/// Memory that has been free for kIdleTime to twice that time goes back to the system, except the
/// reserve (8 MiB). If the arena would exceed its limit or a supervisor's, what is free goes back
/// at once. So a block fits if it and the blocks in use together are within the limit. A segment
/// that is removed is unmapped here and its pages are gone at once; the workers unmap it between
/// two calls, and only then its number is used again. Without an audience there is no thread for
/// idle memory: a free segment then goes back at once, the rest with trim().
///
/// Never destroyed, because storages may refer to it until the process exits. Any thread. A forked
/// child has an arena of its own; the parent's arena neither allocates nor frees in the child,
/// where its live blocks are private copies (client/transport/fork_copies.h).
///
/// A block is free when its last reference ends. References: one of the storage, and one for each
/// lease. If a worker dies, WorkerLink::reaped() ends the leases and not the death itself: until
/// the supervisor has reaped the worker, one of its processes may still write to the blocks.
class InputArena final : public ipc::BlockSource, public ipc::BlockOwner {
 public:
  static constexpr std::chrono::milliseconds kIdleTime{2000};

  /// This process's arena; made by the first call. Throws Error if ISOPOOL_INPUT_ARENA_LIMIT is
  /// invalid, base::SystemCallError if there is no address space for it.
  static InputArena& instance();

  /// A block with one reference. nullptr if the arena has reached its limit, if there is no memory
  /// or descriptor for a new segment, and on a parent's arena in a forked child. Does not wait for
  /// another process, but creates and pre-faults memory when the arena grows. The first failure of
  /// the system that follows a success is logged: tensors then come from the heap.
  void* allocateBlock(size_t bytes) noexcept override;
  /// The same, but returns the cause in `why` and logs nothing. Throws std::bad_alloc.
  void* allocateBlock(size_t bytes, NoBlock& why);
  /// True if `data` lies in the arena's address space, also where no block is.
  bool ownsBlock(const void* data) const noexcept override { return arena_.contains(data); }
  /// Ends the storage's reference: a block that is lent is free only when it was returned.
  void freeBlock(void* data) noexcept override;

  /// A storage over a new block; nullopt where allocateBlock() returns nullptr. Its content is
  /// undefined. If it is resized, it moves to memory of torch's allocator. Throws std::bad_alloc.
  std::optional<c10::Storage> makeStorage(size_t bytes, NoBlock& why);
  /// Logs, unless that was done since the arena last grew, that a tensor gets ordinary memory.
  void logOrdinaryMemory(size_t bytes, const NoBlock& why) noexcept;

  /// See PageArena::locate(). A worker finds the block by the result.
  std::optional<ipc::BlockLocation> locate(const void* data) const noexcept {
    return arena_.locate(data);
  }
  /// See PageArena::referTo(); dropReference() ends the reference.
  std::optional<ipc::PageArena::BlockReference> referTo(const void* data) noexcept {
    return arena_.referTo(data);
  }
  /// Does nothing on a parent's arena in a forked child, and for an address outside the arena.
  void dropReference(const void* block) noexcept;
  /// For a driver that registers the pages of a block: its segment is never trimmed from now on.
  void keepSegmentOf(const void* block) noexcept { arena_.keepSegmentOf(block); }

  /// Notifies `audience` of the segments that exist now and, until removeAudience(), of each new
  /// one. Not owned. If it throws, the audience was not added. After removeAudience() has returned,
  /// no notification runs or follows.
  void addAudience(SegmentAudience& audience);
  void removeAudience(SegmentAudience& audience);
  /// The audience's answer to segmentRetired(). Ignores a segment that is not retired.
  void segmentReleased(SegmentAudience& audience, base::SegmentId id) noexcept;

  /// Returns all free memory to the system, and asks the audiences for what workers have free.
  /// Returns the number of bytes that this process gave back. Throws std::bad_alloc.
  size_t trim();
  /// Returns a part of what has been free for kIdleTime. Returns when to call it again; nullopt if
  /// nothing more can become idle: then SegmentAudience::trimIsDue() is called when that changes.
  /// Only one thread at a time does something.
  std::optional<std::chrono::milliseconds> trimIdle() noexcept;

  /// Not owned. The arena calls BlockLender::reclaim() when it is full, and before idle memory is
  /// looked for; not after removeLender() has returned.
  void addLender(BlockLender& lender);
  void removeLender(BlockLender& lender);

  /// The memory that the arena holds, of blocks with a reference, and the largest block that fits
  /// without further memory.
  uint64_t heldBytes() const { return arena_.heldBytes(); }
  uint64_t bytesInUse() const { return arena_.bytesInUse(); }
  uint64_t largestFreeBlock() const { return arena_.largestFreeBlock(); }
  /// The most that heldBytes() can become: ISOPOOL_INPUT_ARENA_LIMIT, or less if the process's
  /// address space is limited.
  uint64_t limitBytes() const { return limitBytes_; }
  /// Which limit limitBytes() is, for messages: a setting or a limit of the process.
  std::string limitInWords() const;

 private:
  struct Listener {
    SegmentAudience* audience;
    bool toldOfEnd;  // of a retired segment
  };
  struct KnownSegment {
    base::SegmentId id;
    base::Fd object;  // closed when the segment is retired
    size_t bytes;
    bool retired;
    std::vector<Listener> listeners;  // that know of it
  };

  InputArena();
  void* grow(size_t bytes, NoBlock& why);
  void addSegment(size_t bytes, ipc::SegmentUse use) ISOPOOL_REQUIRES(growMutex_);
  /// Why a block does not fit into the limit.
  std::string fullText() const;
  void announceSegmentOf(const void* block);
  void announce() ISOPOOL_REQUIRES(growMutex_);
  void tell(SegmentAudience& audience) ISOPOOL_REQUIRES(growMutex_);
  size_t trimAll(ipc::TrimRule rule) noexcept;
  size_t roomForMemory() const ISOPOOL_REQUIRES(growMutex_);
  void retire(const ipc::PageArena::TrimStep& step) noexcept ISOPOOL_REQUIRES(growMutex_);
  bool tooManyRetired() noexcept;
  void tellOfEnds() noexcept ISOPOOL_REQUIRES(growMutex_);
  void forget(SegmentAudience& audience) noexcept ISOPOOL_REQUIRES(growMutex_);
  void freed(ipc::PageArena::Freed what) noexcept;
  /// True if something is still lent.
  bool reclaim() noexcept;

  const uint64_t settingBytes_;
  const uint64_t forkCopyLimit_;
  const uint32_t generation_;
  ipc::PageArena arena_;
  const uint64_t limitBytes_;
  base::Mutex growMutex_;  // held also while audiences are notified
  std::vector<KnownSegment> segments_ ISOPOOL_GUARDED_BY(growMutex_);
  std::vector<SegmentAudience*> audiences_ ISOPOOL_GUARDED_BY(growMutex_);
  // The segment of which not all audiences were notified; 0: none. Changed under growMutex_.
  std::atomic<uint32_t> unannounced_{0};
  base::Mutex trimmerMutex_;  // the last one: nothing is locked while it is held
  std::vector<SegmentAudience*> trimmers_ ISOPOOL_GUARDED_BY(trimmerMutex_);
  std::atomic<bool> trimIsDue_{false};                    // an audience was notified
  base::Mutex idleMutex_;                                 // held by the one thread in trimIdle()
  uint32_t idleFrom_ ISOPOOL_GUARDED_BY(idleMutex_) = 0;  // 0: the next trim begins
  std::atomic<bool> failureLogged_{false};
  base::Mutex lendersMutex_;  // held while they reclaim
  std::vector<BlockLender*> lenders_ ISOPOOL_GUARDED_BY(lendersMutex_);
};

}  // namespace isopool::client
