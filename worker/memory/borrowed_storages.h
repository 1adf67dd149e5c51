// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Storage.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "ipc/channel/lease_table.h"
#include "ipc/memory/live_blocks.h"
#include "ipc/memory/memory_object.h"
#include "worker/memory/copy_counts.h"
#include "worker/memory/input_segments.h"

namespace isopool::worker {

struct ChannelMemory;
struct BorrowedRange;

/// A range of whole pages, at their address in the segment or arena, with one or more storages of
/// one call. Views of a buffer may share a page, and only whole pages can become private. No
/// storage of another call uses these pages, so each call's pages are privatised or stay shared
/// independently of other calls.
struct BorrowedPages {
  std::byte* begin = nullptr;
  size_t bytes = 0;
  size_t ranges = 0;  ///< storages that are alive
  bool privatised = false;

  std::byte* end() const { return begin + bytes; }
};

/// The storages that a channel's calls brought. The memory of a storage is the client's (an input
/// segment), or a block of this worker's own output arena that it lent to the client before and
/// that now returns as an argument. This object has a record of each storage until the storage
/// dies, on any thread; then the lease is returned or the block's reference is dropped.
///
/// What the model keeps of a pool call is privatised in place: pointers stay valid, and the lease
/// is returned at once. If a storage of an earlier call is alive on the same pages, private or
/// not, a new storage uses a window, a second mapping of the shared pages. So the pages that one
/// call kept are privatised without affecting other calls, and memory behind a handle stays shared
/// with the client.
///
/// Storages die on any thread. All other functions but addLive() are for the call loop's thread.
class BorrowedStorages {
 public:
  /// Makes a storage in a client's input segment. `memory` is the ChannelMemory that has the
  /// segment. The caller has checked `offset` and `bytes` against the segment. The storage returns
  /// `lease` when it dies. Throws SystemCallError if a window can't be mapped.
  static c10::Storage lent(const std::shared_ptr<ChannelMemory>& memory, InputSegment& segment,
                           uint64_t offset, uint64_t bytes, ipc::Lease lease);
  /// Makes a storage over a block of the output arena. `block` must be alive and have at least
  /// `bytes`. Throws SystemCallError if a window can't be mapped.
  static c10::Storage home(const std::shared_ptr<ChannelMemory>& memory, void* block,
                           uint64_t bytes);

  /// Copies bytes of a segment as the client has written them: where a storage of an earlier call
  /// has private pages, the segment's address shows what the model kept. The caller has checked
  /// `offset` against the segment. Throws SystemCallError.
  void read(const InputSegment& segment, uint64_t offset, std::span<std::byte> to);

  /// Begins a new call: storages made from now on belong to it.
  void beginCall() { ++call_; }
  /// Privatises the storages of this call that are still alive, and adds the bytes copied to
  /// `copies`. Storages that can't be privatised stay shared: then returns false.
  bool privatiseKept(ChannelMemory& memory, CopyCounts& copies);
  /// To be called between two calls, when the client has removed a segment: unmaps it. Addresses
  /// that living storages use keep private pages until the storages die; an honest client removes a
  /// segment only when all of these are private already.
  void leave(std::unique_ptr<InputSegment> segment) noexcept;
  /// To be called when the client is gone: makes all storages that are alive private and unmaps the
  /// rest of the client's segments.
  void detach(ChannelMemory& memory) noexcept;
  /// Adds the segments and windows in which storages are alive to `all`, but not those of which the
  /// worker has private pages only. Any thread. Throws std::bad_alloc.
  void addLive(std::vector<ipc::LiveBlocks>& all);

 private:
  friend struct BorrowedRange;
  static c10::Storage makeStorage(std::unique_ptr<BorrowedRange> range, uint64_t bytes);
  static void release(void* range);

  void link(BorrowedRange& range);
  void unlink(BorrowedRange& range) ISOPOOL_REQUIRES(mutex_);
  BorrowedPages* pagesAt(const std::byte* begin, size_t bytes) ISOPOOL_REQUIRES(mutex_);
  bool earlierCallHas(const std::byte* begin, size_t bytes);
  bool hasPagesAt(const std::byte* begin, size_t bytes);
  void groupPages() ISOPOOL_REQUIRES(mutex_);
  bool leavePages(BorrowedRange& range) ISOPOOL_REQUIRES(mutex_);
  bool privatise(ChannelMemory& memory, BorrowedRange& range) ISOPOOL_REQUIRES(mutex_);
  size_t leaveLocked(InputSegment& segment) ISOPOOL_REQUIRES(mutex_);
  void leaveSegment(BorrowedRange& range) ISOPOOL_REQUIRES(mutex_);

  base::Mutex mutex_;  // guards the links of the list, too
  BorrowedRange* newest_ ISOPOOL_GUARDED_BY(mutex_) = nullptr;
  /// Of past calls, by begin.
  std::map<const std::byte*, BorrowedPages> pages_ ISOPOOL_GUARDED_BY(mutex_);
  std::atomic<size_t> pagesCount_{0};
  uint64_t call_ = 0;         // the call loop's, as the next
  uint64_t groupedCall_ = 0;  // storages up to this call are in the map
  bool detached_ ISOPOOL_GUARDED_BY(mutex_) = false;
  /// Removed by the client, but with storages alive.
  std::vector<std::unique_ptr<InputSegment>> left_ ISOPOOL_GUARDED_BY(mutex_);
};

}  // namespace isopool::worker
