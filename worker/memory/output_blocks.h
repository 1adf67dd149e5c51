// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ipc/channel/lease_table.h"
#include "ipc/memory/page_arena.h"
#include "ipc/tensor/routing_allocator.h"
#include "worker/memory/copy_counts.h"
#include "worker/process/memory_limit.h"

namespace isopool::worker {

/// Messages to the supervisor about output segments. Never waits. The call loop's thread.
class SegmentRequester {
 public:
  virtual ~SegmentRequester() = default;
  /// Requests another segment.
  virtual void requestOutputSegment(uint64_t client, size_t bytes) noexcept = 0;
  /// Reports a segment that was removed. False if that is not possible now.
  virtual bool retireOutputSegment(uint64_t client, base::SegmentId segment) noexcept = 0;
};

/// The output arena of one channel and the state of its blocks: allocated by a call, lent to the
/// client, kept by the model. It provides blocks to torch on the call loop's thread while a
/// ScopedBlockSource selects it; storages die on any thread (free()).
///
/// A block has one reference from the storage that it was allocated for, and one from each lease.
/// Client and model never use the same pages of a block: if a block is lent while a storage in it
/// is alive, it is privatised. The worker then continues with private pages at the same address,
/// and the client gets the shared pages. A block that a model keeps without a lease stays shared
/// while its client is the only one, and is privatised before a call of another client.
///
/// If the client dies, detach() ends its leases and makes private what is still in use.
class OutputBlocks final : public ipc::BlockSource {
 public:
  /// `peerReturns` and `requester` must outlive this object. Reserves address space
  /// only. Throws SystemCallError.
  OutputBlocks(uint64_t client, const ipc::LeaseReturns& peerReturns, SegmentRequester& requester);
  ~OutputBlocks() override;

  /// Adds a segment that the supervisor sent. Returns false if the address space reserved for the
  /// arena has no room for it; no further segments are requested then. Throws SystemCallError.
  bool addSegment(base::SegmentId segment, base::Fd object, size_t bytes);
  struct Refusal {
    std::string reason;        ///< empty: no request was refused since the last segment
    bool clientLimit = false;  ///< the client has reached its limit; otherwise the worker has
    bool ofSystem = false;     ///< no limit was met, but the system lacks something
    /// For which a call may wait until the client returns results.
    std::chrono::milliseconds patience{0};
  };
  /// Notes that the supervisor refused a segment, and removes free ones, because these count
  /// towards the limits. If there is none, the next request waits 100 ms.
  void segmentRefused(Refusal refusal);
  /// The latest refusal.
  const Refusal& refusal() const { return refusal_; }
  /// True while the supervisor has not answered the latest request.
  bool awaitsAnswer() const { return requestedBytes_ != 0; }
  /// True if the latest request does not fit into the reserved address space, which no
  /// setting can change.
  bool lacksAddressSpace() const { return lacksAddressSpace_; }
  size_t addressSpaceBytes() const { return arena_.addressSpace().size(); }

  /// One step of a trim, see PageArena::trim(): returns free memory to the system, and removes free
  /// segments but the first one. True if a further step is to follow.
  bool trimStep(ipc::TrimRule rule) noexcept;
  /// True if a trim by TrimRule::kIdle may return something, now or when the client has returned
  /// what it borrowed.
  bool mayBeTrimmed() const noexcept { return arena_.holdsMoreThanReserve() || !retired_.empty(); }

  bool contains(const void* address) const noexcept { return arena_.contains(address); }
  const ipc::PageArena& arena() const { return arena_; }

  // ---- allocation: the call loop's thread

  /// Allocates a block for a tensor of the running call, and notes it, so that noteKept()
  /// finds what the model keeps. Null if there is no room (another segment is then requested)
  /// or in a forked child.
  void* allocateBlock(size_t bytes) noexcept override;
  /// Allocates a block for a copy or a long answer of the runtime itself: one reference, not noted.
  /// Null if there is no room.
  void* allocateUnnoted(size_t bytes) noexcept;
  /// Requests another segment, unless a request is pending or was refused within the last 100 ms.
  void wantRoom(size_t bytes) noexcept;

  // ---- leases: the call loop's thread

  /// Lends a block of a storage to the client, with a reference of its own; nullopt if no
  /// lease is free.
  std::optional<ipc::Lease> lend(void* block);
  /// Lends a block from allocateUnnoted(); the caller's reference becomes the lease's. Returns
  /// nullopt if no lease is free: the caller then keeps the reference.
  std::optional<ipc::Lease> lendOwned(void* block);
  /// Cancels the leases of this call, if its answer can't be sent.
  void cancelLeases();
  uint32_t leasesOut() const { return leases_.outstanding(); }
  /// Drops the references of the leases that the client returned.
  void collectReturned() noexcept;

  // ---- what the model kept: the call loop's thread

  /// To be called when the call itself no longer refers to its storages, and before its
  /// answer is published: privatises lent blocks that still have a storage. Adds the bytes
  /// copied to `copies`.
  void privatiseLent(CopyCounts& copies);
  /// Notes that blocks of this call that are still alive are kept by the model, not by a handle.
  void noteKept();
  /// Bytes of the blocks that the model keeps in shared pages. Any thread.
  size_t keptBytes() const noexcept;
  /// To be called if the worker has other clients: privatises what the model keeps, because this
  /// client can write to the shared pages. Adds the bytes copied to `copies`.
  void privatiseKept(CopyCounts& copies);
  /// Ends the call and clears its notes.
  void endCall();

  /// True if the worker's view of the block is private: its shared pages then belong to another
  /// tensor. Any thread.
  bool isPrivatised(const void* block) const noexcept;
  /// Maps the shared pages under a privatised block a second time. Throws SystemCallError.
  ipc::Mapping mapWindow(const ipc::BlockLocation& block) const;
  /// Privatises a block for a borrowed storage over it. False if it is private already, or if the
  /// allowance or memory is used up. Any thread.
  bool privatise(void* block, size_t bytes) noexcept;

  // ---- references: any thread

  void addReference(const void* block) noexcept { arena_.addReference(block); }
  void dropReference(const void* block) noexcept { arena_.dropReference(block); }
  /// To be called when a storage of the block died: restores the shared pages, if the block was
  /// private, and drops the reference.
  void free(void* block) noexcept;

  /// To be called when the client is gone: ends all its leases and makes private what the
  /// worker still uses.
  void detach() noexcept;
  bool empty() const noexcept { return arena_.bytesInUse() == 0; }

  /// Adds the segments with their live blocks to `all`, unless the client is gone: then these are
  /// private. Any thread. Throws std::bad_alloc.
  void addLive(std::vector<ipc::LiveBlocks>& all) const;

 private:
  ipc::Fit fit() const noexcept;
  /// Returns true if there was one.
  bool removeFreeSegments() noexcept;
  void retire(const ipc::PageArena::TrimStep& step) noexcept;
  uint32_t leasesOf(const void* block) const noexcept;
  uint32_t leasesOfThisCall(const void* block) const noexcept;
  bool privatiseLocked(void* block, size_t bytes) noexcept ISOPOOL_REQUIRES(mutex_);

  const uint64_t client_;
  SegmentRequester& requester_;
  std::deque<MemoryRoom> roomForBooks_;  // for the arena's records of each segment
  ipc::PageArena arena_;
  ipc::LeaseTable leases_;
  std::vector<std::pair<base::SegmentId, base::Fd>> objects_;
  std::vector<base::SegmentId> retired_;  // not reported yet
  uint32_t trimFrom_ = 0;                 // where trimStep() goes on

  struct Lent {
    void* block;
    ipc::Lease lease;
    bool hadStorage;
  };
  std::vector<void*> allocatedInCall_;
  std::vector<Lent> lentInCall_;

  size_t requestedBytes_ = 0;  // of the pending request; 0: none
  int64_t askAgainAt_ = 0;
  bool addressSpaceIsFull_ = false;  // a segment did not fit: requests no more
  bool lacksAddressSpace_ = false;
  Refusal refusal_;  // of the last request

  mutable base::Mutex mutex_;  // held also while it is decided whether a block is privatised
  std::unordered_set<const void*> privatised_ ISOPOOL_GUARDED_BY(mutex_);
  /// By the model, in shared pages.
  std::unordered_set<void*> kept_ ISOPOOL_GUARDED_BY(mutex_);
  size_t keptBytes_ ISOPOOL_GUARDED_BY(mutex_) = 0;  // of kept_
  std::atomic<size_t> privatisedCount_{0};
  bool detached_ ISOPOOL_GUARDED_BY(mutex_) = false;
};

}  // namespace isopool::worker
