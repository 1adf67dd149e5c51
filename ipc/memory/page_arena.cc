// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/page_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/system_call.h"

namespace isopool::ipc {

PageArena::PageArena(size_t capacityBytes)
    : reservation_(reserveAddressSpace(roundUpToPages(capacityBytes) + kPageBytes)),
      entriesMemory_(reserveAddressSpace(bookBytes(capacityBytes))),
      entries_(reinterpret_cast<PageEntry*>(entriesMemory_.data())) {}

PageArena::~PageArena() = default;

size_t PageArena::bookBytes(size_t capacityBytes) noexcept {
  const size_t pages = roundUpToPages(capacityBytes) / kPageBytes + 1;
  return roundUpToPages(pages * sizeof(PageEntry) + kPageBytes);
}

uint32_t PageArena::binOf(uint32_t pages) noexcept {
  if (pages <= kExactBins) return pages - 1;
  const auto magnitude = static_cast<uint32_t>(std::bit_width(pages) - 1);  // >= 6
  return std::min(kBins - 1, kExactBins + magnitude - 6);
}

bool PageArena::hasRoomFor(size_t bytes) const noexcept {
  base::MutexLock lock(mutex_);
  return hasRoomForLocked(bytes);
}

bool PageArena::hasRoomForLocked(size_t bytes) const noexcept {
  return bytes <= reservation_.bytes() - static_cast<size_t>(usedPages_) * kPageBytes;
}

// Makes the entries of the first `pages` pages writable. The rest stays address space only:
// writable memory counts towards limits and overcommitment even if it is never touched, and
// mlockall(MCL_FUTURE) touches all of it.
void PageArena::openBooksFor(uint32_t pages) {
  const size_t bytes =
      std::min(roundUpToPages((pages + size_t{1}) * sizeof(PageEntry)), entriesMemory_.bytes());
  if (bytes <= openBookBytes_) return;
  if (::mprotect(entriesMemory_.data() + openBookBytes_, bytes - openBookBytes_,
                 PROT_READ | PROT_WRITE) != 0) {
    throw base::SystemCallError("mprotect", "arena records", errno);
  }
  openBookBytes_ = bytes;
}

bool PageArena::addSegment(base::SegmentId id, base::Fd object, size_t bytes, Prefault prefault) {
  const auto pages = static_cast<uint32_t>(bytes / kPageBytes);
  uint32_t firstPage = 0;
  {
    base::MutexLock lock(mutex_);
    if (!hasRoomForLocked(bytes)) return false;
    firstPage = usedPages_;
    openBooksFor(firstPage + pages);
    // Before the mapping: nothing that follows it can fail.
    segments_.reserve(segments_.size() + 1);
  }
  // Without the lock, because mapping a large segment takes milliseconds. Only one thread adds
  // segments, so no other segment can take this range meanwhile.
  mapSharedAt(reservation_.data() + static_cast<size_t>(firstPage) * kPageBytes, object, 0, bytes,
              Access::kReadWrite, prefault);
  base::MutexLock lock(mutex_);
  usedPages_ = firstPage + pages;
  segments_.push_back(Segment{id, std::move(object), firstPage, pages});
  segmentBytes_ += bytes;
  insertFreeRun(firstPage, pages);
  return true;
}

void PageArena::insertFreeRun(uint32_t firstPage, uint32_t pages) noexcept {
  PageEntry& head = entries_[firstPage];
  head.state = RunState::kFree;
  head.pages = pages;
  head.references = 0;
  head.previous = 0;
  uint32_t& bin = bins_[binOf(pages)];
  head.next = bin;
  if (bin != 0) entries_[bin].previous = firstPage;
  bin = firstPage;
  PageEntry& tail = entries_[firstPage + pages - 1];
  tail.state = RunState::kFree;
  tail.pages = pages;
}

void PageArena::removeFreeRun(uint32_t firstPage) noexcept {
  PageEntry& head = entries_[firstPage];
  if (head.previous != 0) {
    entries_[head.previous].next = head.next;
  } else {
    bins_[binOf(head.pages)] = head.next;
  }
  if (head.next != 0) entries_[head.next].previous = head.previous;
  entries_[firstPage + head.pages - 1].state = RunState::kNone;
  head.state = RunState::kNone;
}

uint32_t PageArena::takeRun(uint32_t pages) noexcept {
  for (uint32_t bin = binOf(pages); bin < kBins; ++bin) {
    for (uint32_t run = bins_[bin]; run != 0; run = entries_[run].next) {
      const uint32_t available = entries_[run].pages;
      if (available < pages) continue;
      removeFreeRun(run);
      if (available > pages) insertFreeRun(run + pages, available - pages);
      return run;
    }
  }
  return 0;
}

void* PageArena::allocate(size_t bytes) noexcept {
  if (bytes == 0 || bytes > reservation_.bytes()) return nullptr;
  const auto pages = static_cast<uint32_t>(roundUpToPages(bytes) / kPageBytes);
  base::MutexLock lock(mutex_);
  const uint32_t run = takeRun(pages);
  if (run == 0) return nullptr;
  PageEntry& entry = entries_[run];
  entry.state = RunState::kUsed;
  entry.pages = pages;
  entry.references = 1;
  bytesInUse_ += static_cast<size_t>(pages) * kPageBytes;
  return reservation_.data() + static_cast<size_t>(run) * kPageBytes;
}

uint32_t PageArena::pageOf(const void* address) const noexcept {
  return static_cast<uint32_t>((static_cast<const std::byte*>(address) - reservation_.data()) /
                               static_cast<ptrdiff_t>(kPageBytes));
}

const PageArena::Segment* PageArena::segmentOfPage(uint32_t page) const noexcept {
  // The segments are sorted by their pages.
  auto after = std::upper_bound(
      segments_.begin(), segments_.end(), page,
      [](uint32_t value, const Segment& segment) { return value < segment.firstPage; });
  if (after == segments_.begin()) return nullptr;
  const Segment& segment = *(after - 1);
  return page < segment.firstPage + segment.pages ? &segment : nullptr;
}

void PageArena::addReference(const void* block) noexcept {
  base::MutexLock lock(mutex_);
  ++entries_[pageOf(block)].references;
}

uint32_t PageArena::references(const void* block) const noexcept {
  base::MutexLock lock(mutex_);
  return entries_[pageOf(block)].references;
}

void PageArena::dropReference(const void* block) noexcept {
  base::MutexLock lock(mutex_);
  uint32_t first = pageOf(block);
  PageEntry& entry = entries_[first];
  if (--entry.references != 0) return;
  uint32_t pages = entry.pages;
  entry.state = RunState::kNone;
  bytesInUse_ -= static_cast<size_t>(pages) * kPageBytes;
  const Segment& segment = *segmentOfPage(first);
  const uint32_t next = first + pages;
  if (next < segment.firstPage + segment.pages && entries_[next].state == RunState::kFree) {
    const uint32_t nextPages = entries_[next].pages;
    removeFreeRun(next);
    pages += nextPages;
  }
  if (first > segment.firstPage && entries_[first - 1].state == RunState::kFree) {
    const uint32_t previousPages = entries_[first - 1].pages;
    removeFreeRun(first - previousPages);
    first -= previousPages;
    pages += previousPages;
  }
  insertFreeRun(first, pages);
}

std::optional<BlockLocation> PageArena::locate(const void* address) const noexcept {
  if (!contains(address)) return std::nullopt;
  base::MutexLock lock(mutex_);
  return locateLocked(address);
}

std::optional<PageArena::BlockReference> PageArena::referTo(const void* address) noexcept {
  if (!contains(address)) return std::nullopt;
  base::MutexLock lock(mutex_);
  const auto location = locateLocked(address);
  if (!location) return std::nullopt;
  const Segment* segment = segmentOfPage(pageOf(address));
  const size_t head = segment->firstPage + location->offset / kPageBytes;
  ++entries_[head].references;
  return BlockReference{reservation_.data() + head * kPageBytes, *location};
}

std::optional<BlockLocation> PageArena::locateLocked(const void* address) const noexcept {
  const uint32_t page = pageOf(address);
  const Segment* segment = segmentOfPage(page);
  if (segment == nullptr) return std::nullopt;
  // Walks back to the block's first page. Storages begin there, so more than one step is rare.
  for (uint32_t head = page;; --head) {
    const PageEntry& entry = entries_[head];
    if (entry.state == RunState::kUsed) {
      if (page >= head + entry.pages) return std::nullopt;
      return BlockLocation{segment->id,
                           static_cast<uint64_t>(head - segment->firstPage) * kPageBytes,
                           static_cast<uint64_t>(entry.pages) * kPageBytes};
    }
    if (entry.state == RunState::kFree || head == segment->firstPage) return std::nullopt;
  }
}

void* PageArena::find(base::SegmentId id, uint64_t offset) const noexcept {
  if (offset % kPageBytes != 0) return nullptr;
  base::MutexLock lock(mutex_);
  for (const Segment& segment : segments_) {
    if (segment.id != id) continue;
    if (offset / kPageBytes >= segment.pages) return nullptr;
    const uint32_t page = segment.firstPage + static_cast<uint32_t>(offset / kPageBytes);
    if (entries_[page].state != RunState::kUsed) return nullptr;
    return reservation_.data() + static_cast<size_t>(page) * kPageBytes;
  }
  return nullptr;
}

void PageArena::restoreSharedPages(const void* block) {
  base::MutexLock lock(mutex_);
  const uint32_t page = pageOf(block);
  const Segment& segment = *segmentOfPage(page);
  mapSharedAt(reservation_.data() + static_cast<size_t>(page) * kPageBytes, segment.object,
              static_cast<size_t>(page - segment.firstPage) * kPageBytes,
              static_cast<size_t>(entries_[page].pages) * kPageBytes, Access::kReadWrite,
              Prefault::kYes);
}

void PageArena::leaveSegments() noexcept {
  base::MutexLock lock(mutex_);
  for (Segment& segment : segments_) {
    uint32_t page = segment.firstPage;
    while (page < segment.firstPage + segment.pages) {
      const PageEntry& run = entries_[page];
      std::byte* data = reservation_.data() + static_cast<size_t>(page) * kPageBytes;
      const size_t bytes = static_cast<size_t>(run.pages) * kPageBytes;
      if (run.state == RunState::kUsed) {
        privatisePages(data, bytes);
      } else {
        // If this fails, the segment's pages stay mapped until this process ends.
        static_cast<void>(::mmap(data, bytes, PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
      }
      page += run.pages;
    }
    segment.object.close();
  }
  bins_.fill(0);
}

size_t PageArena::capacityBytes() const noexcept {
  base::MutexLock lock(mutex_);
  return segmentBytes_;
}

size_t PageArena::bytesInUse() const noexcept {
  base::MutexLock lock(mutex_);
  return bytesInUse_;
}

}  // namespace isopool::ipc
