// SPDX-License-Identifier: BSD-3-Clause
#include "worker/routed_blocks.h"

namespace isopool::worker {

const RoutedBlocks::Entry* RoutedBlocks::find(const void* data) const noexcept {
  const size_t count = count_.load(std::memory_order_acquire);
  for (size_t i = firstLive_.load(std::memory_order_relaxed); i < count; ++i) {
    const Entry& entry = entries_[i];
    if (data >= entry.begin.load(std::memory_order_relaxed) &&
        data < entry.end.load(std::memory_order_relaxed)) {
      return &entry;
    }
  }
  return nullptr;
}

bool RoutedBlocks::ownsBlock(const void* data) const noexcept { return find(data) != nullptr; }

void RoutedBlocks::freeBlock(void* data) noexcept {
  // The block is alive until now, and with it its arena.
  if (const Entry* entry = find(data)) entry->blocks.load(std::memory_order_relaxed)->free(data);
}

bool RoutedBlocks::add(OutputBlocks& blocks, const void* begin, const void* end) {
  const size_t index = count_.load();
  if (index == kEntries) return false;
  entries_[index].blocks.store(&blocks, std::memory_order_relaxed);
  entries_[index].begin.store(begin, std::memory_order_relaxed);
  entries_[index].end.store(end, std::memory_order_relaxed);
  count_.store(index + 1, std::memory_order_release);
  return true;
}

void RoutedBlocks::remove(OutputBlocks& blocks) {
  const size_t count = count_.load();
  for (size_t i = 0; i < count; ++i) {
    if (entries_[i].blocks.load() != &blocks) continue;
    entries_[i].end.store(nullptr);
    entries_[i].begin.store(nullptr);
    entries_[i].blocks.store(nullptr);
  }
  size_t first = firstLive_.load();
  while (first < count && entries_[first].blocks.load() == nullptr) ++first;
  firstLive_.store(first);
}

}  // namespace isopool::worker
