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
#include "worker/memory/copy_counts.h"
#include "worker/memory/input_segments.h"

namespace isopool::worker {

struct ChannelMemory;
struct BorrowedRange;

/// Whole pages at their proper address that one or more storages of one call lie in: views of a
/// buffer may share a page, and pages become private only as a whole. Storages of other calls have
/// no part in them, so that each call's pages are privatised or shared on their own.
struct BorrowedPages {
  std::byte* begin = nullptr;
  size_t bytes = 0;
  size_t ranges = 0;  ///< that are alive
  bool privatised = false;

  std::byte* end() const { return begin + bytes; }
};

/// The storages that a channel's calls brought: their memory is the client's (an input segment) or
/// was lent to the client before (a block of our own output arena that came home). Each has one
/// record here until it dies, on whatever thread; then the lease goes back, or the reference.
///
/// What the model keeps of a pool call is privatised in place: pointers stay, the lease goes back
/// at once. While a storage of an earlier call lives, private or not, a new one on the same pages
/// is seen through a window, a second mapping of them: so what one call kept is privatised without
/// any other call's, and what a handle has stays the client's.
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
  /// The client is gone: everything alive becomes private, and the rest of its segments is
  /// unmapped.
  void detach(ChannelMemory& memory) noexcept;

 private:
  friend struct BorrowedRange;
  static c10::Storage makeStorage(std::unique_ptr<BorrowedRange> range, uint64_t bytes);
  static void release(void* range);

  void link(BorrowedRange& range);
  void unlink(BorrowedRange& range);
  BorrowedPages* pagesAt(const std::byte* begin, size_t bytes);
  bool earlierCallHas(const std::byte* begin, size_t bytes);
  void groupPages();
  bool leavePages(BorrowedRange& range);
  bool privatise(ChannelMemory& memory, BorrowedRange& range);

  std::mutex mutex_;  // guards the list and the map
  BorrowedRange* newest_ = nullptr;
  std::map<const std::byte*, BorrowedPages> pages_;  // of calls that are over, by their beginning
  std::atomic<size_t> pagesCount_{0};
  uint64_t call_ = 0;
  uint64_t groupedCall_ = 0;  // what it and earlier calls brought is in the map
  bool detached_ = false;
};

}  // namespace isopool::worker
