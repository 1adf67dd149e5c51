// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "ipc/channel/client_end.h"
#include "ipc/channel/lease_table.h"
#include "ipc/channel/status_page.h"
#include "ipc/memory/memory_object.h"

namespace isopool::client {

/// The memory that this process shares with one life of one worker: the channel's control segments
/// and the worker's output arena. Results point into it and keep it, so it outlives the worker, the
/// channel, the manager and the supervisor if a result does.
class WorkerMemory : public std::enable_shared_from_this<WorkerMemory> {
 public:
  /// `status page` is the worker's, mapped read-only. `own`, which only this process may write to,
  /// is not mapped in processes that are forked from it.
  WorkerMemory(base::Epoch epoch, ipc::Mapping own, ipc::Mapping peer, ipc::Mapping statusPage);

  /// The control thread adds segments as the supervisor grants them.
  void addSegment(base::SegmentId id, ipc::Mapping mapping);
  /// The supervisor has nothing more to say of this worker: no find() waits any more.
  void expectNoMoreSegments();

  /// The bytes at that place, or nothing if it lies in no segment. One that is on its way from the
  /// supervisor is waited for, half a second.
  std::optional<std::span<std::byte>> find(base::SegmentId id, uint64_t offset, uint64_t bytes);
  /// True if no segment of that name came before the supervisor had nothing more to say: whether
  /// the worker spoke the truth can't be known any more.
  bool neverCame(base::SegmentId id);

  /// A storage over a block that the worker lent; its end gives the lease back.
  c10::Storage adopt(std::span<std::byte> block, base::SegmentId segment, uint64_t offset,
                     ipc::Lease lease);

  ipc::ClientEnd& end() { return end_; }
  const ipc::WorkerStatusPage* statusPage() const {
    return reinterpret_cast<const ipc::WorkerStatusPage*>(statusPage_.data());
  }

  /// Of all segments.
  uint64_t capacityBytes();
  /// What adopted storages hold.
  uint64_t lentBytes() const { return lentBytes_.load(std::memory_order_relaxed); }
  uint64_t lentBlocks() const { return lentBlocks_.load(std::memory_order_relaxed); }
  void countGivenBack(uint64_t bytes) {
    lentBytes_.fetch_sub(bytes, std::memory_order_relaxed);
    lentBlocks_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  struct Segment {
    base::SegmentId id;
    ipc::Mapping mapping;
  };

  ipc::ClientEnd end_;
  const ipc::Mapping statusPage_;
  std::mutex mutex_;
  std::condition_variable segmentAdded_;
  std::vector<Segment> segments_;
  bool complete_ = false;  // no segment will be added
  std::atomic<uint64_t> lentBytes_{0};
  std::atomic<uint64_t> lentBlocks_{0};
};

/// What a storage made by WorkerMemory::adopt points to.
struct LentBlock {
  std::shared_ptr<WorkerMemory> memory;
  base::SegmentId segment;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  ipc::Lease lease;
  uint32_t generation = 0;  ///< of forks: only the process that borrowed gives back
};

/// The block behind a storage that WorkerMemory::adopt made, else nullptr.
const LentBlock* lentBlockOf(const c10::Storage& storage) noexcept;

}  // namespace isopool::client
