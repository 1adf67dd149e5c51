// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ipc/channel/lease_table.h"
#include "ipc/memory/page_arena.h"
#include "ipc/tensor/routing_allocator.h"
#include "worker/memory/copy_counts.h"
#include "worker/process/memory_limit.h"

namespace isopool::worker {

/// Who asks the supervisor for more room. Never waits.
class SegmentRequester {
 public:
  virtual ~SegmentRequester() = default;
  virtual void requestOutputSegment(uint64_t client, size_t bytes) noexcept = 0;
};

/// The output arena of one channel and what became of its blocks: allocated by a call, lent to the
/// client, kept by the model. It hands out blocks to torch on the call loop's thread while a
/// ScopedBlockSource names it; storages die on any thread (free()).
///
/// A block has one reference of the storage that it was allocated for, and one of each lease. No
/// block is both the client's and the model's: one that is lent although a storage of it lives is
/// privatised, so that the worker goes on with private pages at the same address and the client
/// gets the shared ones. What a model keeps unlent stays where it is while its client is the only
/// one served, and is privatised before another client's call.
class OutputBlocks final : public ipc::BlockSource {
 public:
  /// `peerReturns` must outlive it. Throws SystemCallError.
  OutputBlocks(uint64_t client, const ipc::LeaseReturns& peerReturns, SegmentRequester& requester);
  ~OutputBlocks() override;

  /// False if the address space reserved for the arena has no room for it; then it asks for no
  /// more. Throws SystemCallError.
  bool addSegment(base::SegmentId segment, base::Fd object, size_t bytes);
  /// For this reason; `clientLimit`: the operator lets the client have no more.
  void segmentRefused(const std::string& reason, bool clientLimit);
  /// Why there is no more room, or empty; true beside it if the operator lets the client have no
  /// more.
  const std::pair<std::string, bool>& refusal() const { return refusal_; }
  /// True if what was last wanted has no place in the address space, which no setting changes.
  bool lacksAddressSpace() const { return lacksAddressSpace_; }
  size_t addressSpaceBytes() const { return arena_.addressSpace().size(); }

  bool contains(const void* address) const noexcept { return arena_.contains(address); }
  const ipc::PageArena& arena() const { return arena_; }

  // ---- allocation: the call loop's thread

  /// For tensors of the call that runs: noted, so that endCall() finds what the model keeps.
  void* allocateBlock(size_t bytes) noexcept override;
  /// For copies and blobs of our own: one reference, not noted.
  void* allocateUnnoted(size_t bytes) noexcept;
  /// Asks for room if nothing is asked for yet.
  void wantRoom(size_t bytes) noexcept;

  // ---- leases: the call loop's thread

  /// Lends a block further, adding a reference; nullopt if all leases are out.
  std::optional<ipc::Lease> lend(void* block);
  /// Lends a block that allocateUnnoted() gave; its reference becomes the lease's. If nullopt the
  /// block is still the caller's.
  std::optional<ipc::Lease> lendOwned(void* block);
  /// Ends the leases of a call whose answer can't be sent.
  void cancelLeases();
  uint32_t leasesOut() const { return leases_.outstanding(); }
  /// Takes back what the client returned.
  void collectReturned() noexcept;

  // ---- what the model kept: the call loop's thread

  /// To be called when nothing of the call's own refers to its storages any more, before its answer
  /// leaves: privatises what was lent and still has a storage. Counts the bytes that it copied.
  void privatiseLent(CopyCounts& copies);
  /// Blocks of this call that are still alive are the model's now, not a handle's.
  void noteKept();
  /// There are other clients: what the model keeps leaves the shared pages, which ours can write
  /// to. Counts the bytes that it copied.
  void privatiseKept(CopyCounts& copies);
  /// The call is over: its notes are forgotten.
  void endCall();

  /// True if the worker's view of the block is private, so that its shared pages are another
  /// tensor's.
  bool isPrivatised(const void* block) const noexcept;
  /// A view of the shared pages under a privatised block. Throws SystemCallError.
  ipc::Mapping mapWindow(const ipc::BlockLocation& block) const;
  /// Makes private what a borrowed storage over the block sees, unless others refer to it too.
  bool privatise(void* block, size_t bytes) noexcept;

  // ---- references: any thread

  void addReference(const void* block) noexcept { arena_.addReference(block); }
  void dropReference(const void* block) noexcept { arena_.dropReference(block); }
  /// A storage of the block died: shared pages are put back under it and the reference is dropped.
  void free(void* block) noexcept;

  /// The client is gone: its leases end, and what the worker still refers to becomes private.
  void detach() noexcept;
  bool empty() const noexcept { return arena_.bytesInUse() == 0; }

 private:
  uint32_t leasesOf(const void* block) const noexcept;
  uint32_t leasesOfThisCall(const void* block) const noexcept;
  bool privatiseLocked(void* block, size_t bytes) noexcept;

  const uint64_t client_;
  SegmentRequester& requester_;
  std::deque<MemoryRoom> roomForBooks_;  // of each segment
  ipc::PageArena arena_;
  ipc::LeaseTable leases_;
  std::vector<std::pair<base::SegmentId, base::Fd>> objects_;

  struct Lent {
    void* block;
    ipc::Lease lease;
    bool hadStorage;
  };
  std::vector<void*> allocatedInCall_;
  std::vector<Lent> lentInCall_;

  size_t requestedBytes_ = 0;  // of the request that is on its way; 0: none is
  int64_t askAgainAt_ = 0;
  bool addressSpaceIsFull_ = false;  // a segment had no place: no more are asked for
  bool lacksAddressSpace_ = false;
  std::pair<std::string, bool> refusal_;  // of the last request

  mutable std::mutex mutex_;  // guards what follows and the decision to privatise
  std::unordered_set<const void*> privatised_;
  std::unordered_set<void*> kept_;  // by the model, in shared pages
  std::atomic<size_t> privatisedCount_{0};
  bool detached_ = false;
};

}  // namespace isopool::worker
