// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "ipc/tensor/routing_allocator.h"
#include "worker/memory/output_blocks.h"

namespace isopool::worker {

/// Finds the channel's arena that a tensor's memory belongs to when its storage dies. Storages
/// outlive channels and die on any thread, so this object is never destroyed. ownsBlock() and
/// freeBlock(): any thread, without a lock in this class.
class RoutedBlocks final : public ipc::BlockOwner {
 public:
  /// Searches the table in order: its time grows with the number of clients.
  bool ownsBlock(const void* data) const noexcept override;
  void freeBlock(void* data) noexcept override;
  /// The size of the block that begins at `data`, in whole pages; 0 if there is none. Any thread.
  size_t bytesOf(const void* data) const noexcept;

  /// Adds an arena with its address range. False if the table is full, because this worker serves
  /// too many clients. The call loop's thread.
  bool add(OutputBlocks& blocks, const void* begin, const void* end);
  /// Removes an arena before it is destroyed; it must be empty. The call loop's thread.
  void remove(OutputBlocks& blocks);

 private:
  static constexpr size_t kEntries = 8192;
  struct Entry {
    std::atomic<const void*> begin{nullptr};
    std::atomic<const void*> end{nullptr};
    std::atomic<OutputBlocks*> blocks{nullptr};
  };
  const Entry* find(const void* data) const noexcept;

  std::array<Entry, kEntries> entries_;
  std::atomic<size_t> count_{0};  // entries from this index on were never used
};

}  // namespace isopool::worker
