// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "ipc/channel/lease_table.h"
#include "ipc/memory/memory_object.h"
#include "worker/copy_counts.h"
#include "worker/input_segments.h"

namespace isopool::worker {

struct ChannelMemory;
struct BorrowedRange;

/// The storages that a channel's calls brought: their memory is the client's (an input segment) or
/// was lent to the client before (a block of our own output arena that came home). Each has one
/// record here until it dies, on whatever thread; then the lease goes back, or the reference.
///
/// What the model keeps of a pool call is privatised in place: pointers stay, the lease goes back at
/// once. Until the storage dies a new input on the same pages is seen through a window, a second
/// mapping of them.
class BorrowedStorages {
 public:
  /// `memory` owns this object. Offset and length were checked against the segment. Throws
  /// SystemCallError if a window can't be mapped.
  static c10::Storage lent(const std::shared_ptr<ChannelMemory>& memory, InputSegment& segment,
                           uint64_t offset, uint64_t bytes, ipc::Lease lease);
  /// `block` is a live block of the output arena with at least `bytes`.
  static c10::Storage home(const std::shared_ptr<ChannelMemory>& memory, void* block,
                           uint64_t bytes);

  /// A new call begins: what is made from now on is its.
  void beginCall() { ++call_; }
  /// Privatises what this call brought and is still alive. Counts the bytes copied.
  void privatiseKept(ChannelMemory& memory, CopyCounts& copies);
  /// The client is gone: everything alive becomes private, and the rest of its segments is unmapped.
  void detach(ChannelMemory& memory) noexcept;

 private:
  friend struct BorrowedRange;
  static c10::Storage makeStorage(std::unique_ptr<BorrowedRange> range, uint64_t bytes);
  static void release(void* range);

  void link(BorrowedRange& range);
  void unlink(BorrowedRange& range);
  bool overlapsPrivatised(const std::byte* data, size_t bytes) const;
  bool sharedWithOthers(const BorrowedRange& range) const;
  bool privatise(ChannelMemory& memory, BorrowedRange& range);

  std::mutex mutex_;  // guards the list and the map
  BorrowedRange* newest_ = nullptr;
  std::map<const std::byte*, BorrowedRange*> privatisedInputs_;
  std::atomic<size_t> privatisedCount_{0};
  uint64_t call_ = 0;
  bool detached_ = false;
};

}  // namespace isopool::worker
