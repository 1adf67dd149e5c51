// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "client/transport/fork_copies.h"
#include "ipc/channel/client_end.h"
#include "ipc/channel/lease_table.h"
#include "ipc/channel/status_page.h"
#include "ipc/memory/memory_object.h"

namespace isopool::client {

/// One segment of a worker's output arena. Whoever uses its bytes shares the ownership, so that the
/// bytes stay mapped even if the worker says that nothing of it is lent.
struct OutputSegment {
  base::SegmentId id;
  ipc::Mapping mapping;
  std::unique_ptr<CopiedInForks> copied;  // ends before the mapping
};

/// Bytes of a segment.
struct OutputPlace {
  std::shared_ptr<OutputSegment> segment;
  std::span<std::byte> bytes;
};

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
  void addSegment(base::SegmentId id, ipc::Mapping mapping);
  /// The worker has removed the segment: it is unmapped here, too, as soon as nothing refers to it.
  /// An honest worker has first got back all that it had lent of it.
  void removeSegment(base::SegmentId id);
  /// Call when the supervisor grants no further segment: from here on find() does not wait.
  void expectNoMoreSegments();

  /// The bytes at that place; nothing if they are not within the segment, or if there is no such
  /// segment. The arguments may come from the worker. Waits up to half a second for a segment,
  /// because the supervisor's message may still be under way.
  std::optional<OutputPlace> find(base::SegmentId id, uint64_t offset, uint64_t bytes);
  /// True if expectNoMoreSegments() was called before a segment with this id came: it can't be
  /// known any more whether the worker's reference to it was valid.
  bool neverCame(base::SegmentId id);

  /// A storage over a block that the worker lent; its destruction returns the lease, on whichever
  /// thread, unless that is in a forked child. If the storage is resized, it moves to memory of
  /// torch's allocator, and the lease is returned. Throws std::bad_alloc; then the lease may stay
  /// outstanding.
  c10::Storage adopt(OutputPlace place, ipc::Lease lease);

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
  ipc::ClientEnd end_;
  const ipc::Mapping statusPage_;
  base::Mutex mutex_;
  base::Condition segmentAdded_;
  LentBlocks lent_;
  std::vector<std::shared_ptr<OutputSegment>> segments_ ISOPOOL_GUARDED_BY(mutex_);
  bool complete_ ISOPOOL_GUARDED_BY(mutex_) = false;  // no segment will be added
  std::atomic<uint64_t> lentBytes_{0};
};

/// The context of a storage that WorkerMemory::adopt made. The lease is returned when neither the
/// storage nor a HeldBlock refers to it.
struct LentBlock {
  std::shared_ptr<WorkerMemory> memory;
  std::shared_ptr<OutputSegment> segment;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  ipc::Lease lease;
  uint32_t generation = 0;    ///< of forks: only the process that borrowed the block returns it
  LentBlock* next = nullptr;  ///< of those that returnAfterForks() keeps
  std::atomic<uint32_t> references{1};
};

/// Keeps a block borrowed while a call has it: the caller may resize the storage meanwhile, which
/// ends the storage's reference.
class HeldBlock {
 public:
  HeldBlock() = default;
  /// `block` is alive.
  explicit HeldBlock(LentBlock& block) noexcept : block_(&block) {
    block.references.fetch_add(1, std::memory_order_relaxed);
  }
  HeldBlock(HeldBlock&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  HeldBlock& operator=(HeldBlock&& other) noexcept {
    if (this != &other) {
      release();
      block_ = std::exchange(other.block_, nullptr);
    }
    return *this;
  }
  HeldBlock(const HeldBlock&) = delete;
  HeldBlock& operator=(const HeldBlock&) = delete;
  ~HeldBlock() { release(); }

 private:
  void release() noexcept;

  LentBlock* block_ = nullptr;
};

inline bool WorkerMemory::countGivenBack(const LentBlock& block) {
  lentBytes_.fetch_sub(block.bytes, std::memory_order_relaxed);
  return lent_.remove(block.lease.index);
}

/// Returns the block's lease to the worker, and deletes the block.
void returnLentBlock(LentBlock* block) noexcept;

/// The block behind a storage that WorkerMemory::adopt made, else nullptr. Lives as long as the
/// storage is not resized.
LentBlock* lentBlockOf(const c10::Storage& storage) noexcept;

}  // namespace isopool::client
