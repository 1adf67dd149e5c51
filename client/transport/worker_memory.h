// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "client/transport/fork_copies.h"
#include "ipc/channel/client_end.h"
#include "ipc/channel/lease_table.h"
#include "ipc/channel/status_page.h"
#include "ipc/memory/memory_object.h"

namespace isopool::client {

/// The memory that this process shares with one life of one worker: the channel's control segments
/// and the worker's output arena. Results point into it and share ownership of it, so it outlives
/// the worker, the channel, the manager and the supervisor if a result does. Any thread; end() has
/// rules of its own.
///
/// The worker may write to its segments and to its output arena at any time, also to blocks that it
/// has lent, if it is hostile. When it dies, everything stays mapped and readable.
class WorkerMemory : public std::enable_shared_from_this<WorkerMemory> {
 public:
  /// `statusPage` is the worker's, mapped read-only. `own`, which only this process may write to,
  /// is not mapped in forked children. Throws SystemCallError.
  WorkerMemory(base::Epoch epoch, ipc::Mapping own, ipc::Mapping peer, ipc::Mapping statusPage);

  /// The control thread adds segments as the supervisor grants them, and wakes threads in find().
  /// They stay mapped as long as this object lives.
  void addSegment(base::SegmentId id, ipc::Mapping mapping);
  /// Call when the supervisor grants no further segment: from here on find() does not wait.
  void expectNoMoreSegments();

  /// The bytes at that place; nothing if they are not within the segment, or if there is no such
  /// segment. The arguments may come from the worker. Waits up to half a second for a segment,
  /// because the supervisor's message may still be under way.
  std::optional<std::span<std::byte>> find(base::SegmentId id, uint64_t offset, uint64_t bytes);
  /// True if expectNoMoreSegments() was called before a segment with this id came: it can't be
  /// known any more whether the worker's reference to it was valid.
  bool neverCame(base::SegmentId id);

  /// A storage over a block that the worker lent; its destruction returns the lease, on whichever
  /// thread, unless that is in a forked child. `block` must come from find(). The storage can't be
  /// resized. Throws std::bad_alloc; then the lease may stay outstanding.
  c10::Storage adopt(std::span<std::byte> block, base::SegmentId segment, uint64_t offset,
                     ipc::Lease lease);

  /// See ClientEnd for the threads that may use it: WorkerLink's mutexes serialise them.
  ipc::ClientEnd& end() { return end_; }
  /// Untrusted: written by the worker. Null if the constructor got no page.
  const ipc::WorkerStatusPage* statusPage() const {
    return reinterpret_cast<const ipc::WorkerStatusPage*>(statusPage_.data());
  }

  /// The size of all segments together.
  uint64_t capacityBytes();
  /// The blocks that adopted storages hold.
  uint64_t lentBytes() const { return lentBytes_.load(std::memory_order_relaxed); }
  uint64_t lentBlocks() const { return lent_.count(); }
  /// For the deleter of an adopted storage: see LentBlocks::remove().
  bool countGivenBack(const LentBlock& block);

 private:
  struct Segment {
    base::SegmentId id;
    ipc::Mapping mapping;
    std::unique_ptr<CopiedInForks> copied;
  };

  ipc::ClientEnd end_;
  const ipc::Mapping statusPage_;
  base::Mutex mutex_;
  base::Condition segmentAdded_;
  LentBlocks lent_;
  std::vector<Segment> segments_ ISOPOOL_GUARDED_BY(mutex_);
  bool complete_ ISOPOOL_GUARDED_BY(mutex_) = false;  // no segment will be added
  std::atomic<uint64_t> lentBytes_{0};
};

/// The context of a storage that WorkerMemory::adopt made.
struct LentBlock {
  std::shared_ptr<WorkerMemory> memory;
  base::SegmentId segment;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  ipc::Lease lease;
  uint32_t generation = 0;    ///< of forks: only the process that borrowed the block returns it
  LentBlock* next = nullptr;  ///< of those that returnAfterForks() keeps
};

inline bool WorkerMemory::countGivenBack(const LentBlock& block) {
  lentBytes_.fetch_sub(block.bytes, std::memory_order_relaxed);
  return lent_.remove(block.lease.index);
}

/// Returns the block's lease to the worker, and deletes the block.
void returnLentBlock(LentBlock* block) noexcept;

/// The block behind a storage that WorkerMemory::adopt made, else nullptr. Lives as long as the
/// storage.
const LentBlock* lentBlockOf(const c10::Storage& storage) noexcept;

}  // namespace isopool::client
