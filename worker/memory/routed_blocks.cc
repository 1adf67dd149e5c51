// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/routed_blocks.h"

namespace isopool::worker {

// Entries are used again, so that a reader may meet one half old and half new. `end` is written
// last and cleared first, and `begin` is only ever an arena's: a reader that finds `end` unchanged
// has read one arena's range, or the beginning of one and the end of another that ends at the same
// address. Both arenas were there while `data` lived, so it lies in neither unless it is that
// arena's.
const RoutedBlocks::Entry* RoutedBlocks::find(const void* data) const noexcept {
  const size_t count = count_.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    const Entry& entry = entries_[i];
    const void* end = entry.end.load(std::memory_order_acquire);
    if (data >= end || data < entry.begin.load(std::memory_order_acquire)) continue;
    if (entry.end.load(std::memory_order_acquire) == end) return &entry;
  }
  return nullptr;
}

bool RoutedBlocks::ownsBlock(const void* data) const noexcept { return find(data) != nullptr; }

void RoutedBlocks::freeBlock(void* data) noexcept {
  // The block is alive until now, and with it its arena.
  if (const Entry* entry = find(data)) entry->blocks.load(std::memory_order_relaxed)->free(data);
}

bool RoutedBlocks::add(OutputBlocks& blocks, const void* begin, const void* end) {
  const size_t count = count_.load();
  size_t index = 0;
  while (index < count && entries_[index].blocks.load() != nullptr) ++index;
  if (index == kEntries) return false;
  entries_[index].blocks.store(&blocks);
  entries_[index].begin.store(begin);
  entries_[index].end.store(end);
  if (index == count) count_.store(count + 1, std::memory_order_release);
  return true;
}

void RoutedBlocks::remove(OutputBlocks& blocks) {
  const size_t count = count_.load();
  for (size_t i = 0; i < count; ++i) {
    if (entries_[i].blocks.load() != &blocks) continue;
    entries_[i].end.store(nullptr);
    entries_[i].blocks.store(nullptr);
  }
}

}  // namespace isopool::worker
