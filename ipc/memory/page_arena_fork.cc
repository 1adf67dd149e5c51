// SPDX-License-Identifier: BSD-3-Clause
// What a fork of the process that owns the arena needs of it.
#include <algorithm>
#include <utility>
#include <vector>

#include "ipc/memory/page_arena.h"
#include "ipc/memory/private_image.h"

namespace isopool::ipc {

void PageArena::keepFreedBlocks() noexcept {
  mutex_.assertHeld();
  ++keepers_;
}

void PageArena::releaseFreedBlocks() noexcept {
  base::MutexLock lock(mutex_);
  if (--keepers_ > 0) return;
  while (kept_ != 0) {
    const uint32_t first = kept_;
    kept_ = entries_[first].next;
    freeRun(first);
  }
}

bool PageArena::becomePrivate() noexcept {
  mutex_.assertHeld();
  return std::all_of(segments_.begin(), segments_.end(), [this](const Segment& segment) {
    std::byte* const data =
        reservation_.data() + static_cast<size_t>(segment.firstPage) * kPageBytes;
    PrivateImage image(data, static_cast<size_t>(segment.pages) * kPageBytes);
    const uint32_t end = segment.firstPage + segment.pages;
    for (uint32_t page = segment.firstPage; page < end; page += entries_[page].pages) {
      const PageEntry& run = entries_[page];
      if (run.state != RunState::kUsed) continue;
      if (!image.copy(reservation_.data() + static_cast<size_t>(page) * kPageBytes,
                      static_cast<size_t>(run.pages) * kPageBytes)) {
        return false;
      }
    }
    return image.putInPlace();
  });
}

void PageArena::addLive(std::vector<LiveBlocks>& all) const {
  base::MutexLock lock(mutex_);
  for (const Segment& segment : segments_) {
    LiveBlocks live{
        addressOf(segment.firstPage), static_cast<size_t>(segment.pages) * kPageBytes, {}};
    for (uint32_t page = segment.firstPage; page < segment.endPage();
         page += entries_[page].pages) {
      const PageEntry& run = entries_[page];
      if (run.state != RunState::kUsed) continue;
      live.blocks.emplace_back(addressOf(page), static_cast<size_t>(run.pages) * kPageBytes);
    }
    if (!live.blocks.empty()) all.push_back(std::move(live));
  }
}

}  // namespace isopool::ipc
