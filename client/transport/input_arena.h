// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "ipc/channel/lease_table.h"
#include "ipc/memory/page_arena.h"
#include "ipc/tensor/routing_allocator.h"

namespace isopool::client {

/// Observer that is notified of each new segment: a connection to a supervisor.
class SegmentAudience {
 public:
  virtual ~SegmentAudience() = default;
  /// Called by the thread that allocates or that adds the audience, under a lock of the arena: must
  /// not block and must not use the arena. `object` is valid during the call only; `bytes` is its
  /// size. If it throws, it must have had no effect: it is called again before a block is used.
  virtual void segmentAdded(base::SegmentId id, const base::Fd& object, size_t bytes) = 0;
};

/// This process's memory for tensors that are passed to workers: one arena for all managers, mapped
/// by every worker that the process may call. So a tensor that was created before its worker was
/// chosen is passed without a copy. The process itself creates the segments by which the arena
/// grows, up to ISOPOOL_INPUT_ARENA_LIMIT; the arena never shrinks.
///
/// Never destroyed, because storages may refer to it until the process exits. Any thread. A forked
/// child has an arena of its own; the parent's arena neither allocates nor frees in the child, where
/// its live blocks are private copies (client/transport/fork_copies.h).
///
/// A block is free when its last reference ends. References: one of the storage, and one for each
/// lease. If a worker dies, WorkerLink::reaped() ends the leases and not the death itself: until
/// the supervisor has reaped the worker, one of its processes may still write to the blocks.
class InputArena final : public ipc::BlockSource, public ipc::BlockOwner {
 public:
  /// This process's arena; made by the first call. Throws Error if ISOPOOL_INPUT_ARENA_LIMIT is
  /// invalid, base::SystemCallError if there is no address space for it.
  static InputArena& instance();

  /// A block with one reference. nullptr if the arena has reached its limit, if there is no memory
  /// or descriptor for a new segment, and on a parent's arena in a forked child. Does not wait for
  /// another process, but creates and pre-faults memory when the arena grows.
  void* allocateBlock(size_t bytes) noexcept override;
  /// True if `data` lies in the arena's address space, also where no block is.
  bool ownsBlock(const void* data) const noexcept override { return arena_.contains(data); }
  /// Ends the storage's reference: a block that is lent is free only when it was returned.
  void freeBlock(void* data) noexcept override;

  /// A storage over a new block; nullopt where allocateBlock() returns nullptr. Its content is
  /// undefined. It can't be resized. Throws std::bad_alloc.
  std::optional<c10::Storage> makeStorage(size_t bytes);

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

  /// Notifies `audience` of the segments that exist now and, until removeAudience(), of each new
  /// one. Not owned. If it throws, the audience was not added. After removeAudience() has returned,
  /// no notification runs or follows.
  void addAudience(SegmentAudience& audience);
  void removeAudience(SegmentAudience& audience);

  /// Tables of loans of this arena's blocks, not owned. When the arena is full, it collects from
  /// them what the workers have returned; not after removeLoans() has returned.
  void addLoans(ipc::LeaseTable& loans);
  void removeLoans(ipc::LeaseTable& loans);

  /// The size of all segments together, and of all blocks that have a reference.
  uint64_t capacityBytes() const { return arena_.capacityBytes(); }
  uint64_t bytesInUse() const { return arena_.bytesInUse(); }
  /// The most that capacityBytes() can become: ISOPOOL_INPUT_ARENA_LIMIT, or less if the process's
  /// address space is limited.
  uint64_t limitBytes() const { return limitBytes_; }
  /// Which limit limitBytes() is, for messages: a setting or a limit of the process.
  std::string limitInWords() const;

 private:
  struct KnownSegment {
    base::SegmentId id;
    base::Fd object;
    size_t bytes;
  };

  struct Audience {
    SegmentAudience* audience;
    size_t told;  // it was notified of so many of segments_, the first ones
  };

  InputArena();
  bool grow(size_t bytes);
  void announceSegmentOf(const void* block);
  void tell(Audience& audience) const ISOPOOL_REQUIRES(growMutex_);
  void reclaim() noexcept;

  const uint64_t settingBytes_;
  const uint64_t forkCopyLimit_;
  const uint32_t generation_;
  ipc::PageArena arena_;
  const uint64_t limitBytes_;
  base::Mutex growMutex_;  // held also while audiences are notified
  std::vector<KnownSegment> segments_ ISOPOOL_GUARDED_BY(growMutex_);
  std::vector<Audience> audiences_ ISOPOOL_GUARDED_BY(growMutex_);
  // The first segment of which not all audiences were notified; 0: none. Changed under growMutex_.
  std::atomic<uint32_t> unannounced_{0};
  base::Mutex loansMutex_;
  std::vector<ipc::LeaseTable*> loans_ ISOPOOL_GUARDED_BY(loansMutex_);
};

}  // namespace isopool::client
