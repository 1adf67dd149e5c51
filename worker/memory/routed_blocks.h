// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "ipc/tensor/routing_allocator.h"
#include "worker/memory/output_blocks.h"

namespace isopool::worker {

/// Tells to which channel's arena a tensor's memory belongs when its storage dies, on any thread
/// and for ever: storages outlive channels. Immortal.
class RoutedBlocks final : public ipc::BlockOwner {
 public:
  bool ownsBlock(const void* data) const noexcept override;
  void freeBlock(void* data) noexcept override;

  /// False if this worker serves too many clients. The call loop's thread.
  bool add(OutputBlocks& blocks, const void* begin, const void* end);
  /// `blocks` is empty and will be destroyed.
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
  std::atomic<size_t> count_{0};  // entries beyond it were never used
};

}  // namespace isopool::worker
