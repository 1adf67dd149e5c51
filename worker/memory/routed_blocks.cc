// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/routed_blocks.h"

namespace isopool::worker {

// Entries are reused, so a reader may see one that is half old and half new. `end` is written last
// and cleared first, and `begin` is always the begin of some arena. A reader that finds `end`
// unchanged has therefore read the range of one arena, or the begin of one and the end of another
// that ends at the same address. Both arenas existed while `data` was alive, so `data` lies in that
// range only if it belongs to that arena.
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
  // The block is alive until now, and so is its arena.
  if (const Entry* entry = find(data)) entry->blocks.load(std::memory_order_relaxed)->free(data);
}

size_t RoutedBlocks::bytesOf(const void* data) const noexcept {
  const Entry* entry = find(data);
  if (entry == nullptr) return 0;
  const auto location = entry->blocks.load(std::memory_order_relaxed)->arena().locate(data);
  return location ? location->bytes : 0;
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
