// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/page_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>

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
  if (bytes > reservation_.bytes()) return false;
  base::MutexLock lock(mutex_);
  return roomFor(static_cast<uint32_t>(roundUpToPages(bytes) / kPageBytes)) != 0;
}

// The first page of the lowest gap between the segments that has so many pages; 0: there is none.
uint32_t PageArena::roomFor(uint32_t pages) const noexcept {
  uint32_t first = 1;  // page 0 is never used, so that 0 means none
  for (const Segment& segment : segments_) {
    if (segment.firstPage - first >= pages) return first;
    first = segment.endPage();
  }
  return reservation_.bytes() / kPageBytes - first >= pages ? first : 0;
}

size_t PageArena::bookEnd(uint32_t pages) const noexcept {
  return std::min(roundUpToPages((pages + size_t{1}) * sizeof(PageEntry)), entriesMemory_.bytes());
}

size_t PageArena::bookGrowth(size_t bytes) const noexcept {
  if (bytes > reservation_.bytes()) return 0;
  const auto pages = static_cast<uint32_t>(roundUpToPages(bytes) / kPageBytes);
  base::MutexLock lock(mutex_);
  const uint32_t first = roomFor(pages);
  const size_t end = first != 0 ? bookEnd(first + pages) : 0;
  return end > openBookBytes_ ? end - openBookBytes_ : 0;
}

// Makes the entries of the first `pages` pages writable. The rest stays address space only:
// writable memory counts towards limits and overcommitment even if it is never touched, and
// mlockall(MCL_FUTURE) touches all of it.
void PageArena::openBooksFor(uint32_t pages) {
  const size_t bytes = bookEnd(pages);
  if (bytes <= openBookBytes_) return;
  if (::mprotect(entriesMemory_.data() + openBookBytes_, bytes - openBookBytes_,
                 PROT_READ | PROT_WRITE) != 0) {
    throw base::SystemCallError("mprotect", "arena records", errno);
  }
  openBookBytes_ = bytes;
}

bool PageArena::addSegment(base::SegmentId id, base::Fd object, size_t bytes, Prefault prefault,
                           SegmentUse use) {
  if (bytes > reservation_.bytes()) return false;
  const auto pages = static_cast<uint32_t>(bytes / kPageBytes);
  uint32_t firstPage = 0;
  {
    base::MutexLock lock(mutex_);
    firstPage = roomFor(pages);
    if (firstPage == 0) return false;
    openBooksFor(firstPage + pages);
    // Before the mapping: nothing that follows it can fail.
    segments_.reserve(segments_.size() + 1);
  }
  // Without the lock, because mapping a large segment takes milliseconds. Only one thread adds
  // segments, so no other segment can take this range meanwhile.
  mapSharedAt(addressOf(firstPage), object, 0, bytes, Access::kReadWrite, prefault);
  base::MutexLock lock(mutex_);
  const auto after = std::find_if(segments_.begin(), segments_.end(), [&](const Segment& segment) {
    return segment.firstPage > firstPage;
  });
  const auto added = segments_.insert(after, Segment{.id = id,
                                                     .object = std::move(object),
                                                     .firstPage = firstPage,
                                                     .pages = pages,
                                                     .use = use,
                                                     .reserve = false,
                                                     .kept = false});
  if (use == SegmentUse::kMany && reserveBytes_ == 0) {
    added->reserve = true;
    reserveBytes_ = bytes;
  }
  segmentBytes_ += bytes;
  insertFreeRun(binsOf(use), {firstPage, pages, pages, 0});
  return true;
}

void PageArena::insertFreeRun(Bins& bins, const Run& run) noexcept {
  PageEntry& head = entries_[run.first];
  head.state = RunState::kFree;
  head.pages = run.pages;
  head.recentPages = run.recentPages;
  head.absentPages = run.absentPages;
  head.previous = 0;
  uint32_t& bin = bins[binOf(run.pages)];
  head.next = bin;
  if (bin != 0) entries_[bin].previous = run.first;
  bin = run.first;
  PageEntry& tail = entries_[run.first + run.pages - 1];
  tail.state = RunState::kFree;
  tail.pages = run.pages;
}

PageArena::Run PageArena::removeFreeRun(Bins& bins, uint32_t firstPage) noexcept {
  PageEntry& head = entries_[firstPage];
  if (head.previous != 0) {
    entries_[head.previous].next = head.next;
  } else {
    bins[binOf(head.pages)] = head.next;
  }
  if (head.next != 0) entries_[head.next].previous = head.previous;
  entries_[firstPage + head.pages - 1].state = RunState::kNone;
  head.state = RunState::kNone;
  return {firstPage, head.pages, head.recentPages, head.absentPages};
}

// Inserts a run, together with the free runs before and behind it, and returns the sum of their
// pages. What was in use lately is a front part of the result: blocks are taken from the front, so
// that the rest of a long run stays known as unused while blocks come and go in front of it.
uint32_t PageArena::mergeFreeRun(const Segment& segment, Run run) noexcept {
  Bins& bins = binsOf(segment.use);
  const uint32_t next = run.first + run.pages;
  if (next < segment.endPage() && entries_[next].state == RunState::kFree) {
    const Run behind = removeFreeRun(bins, next);
    if (behind.recentPages > 0) run.recentPages = run.pages + behind.recentPages;
    run.pages += behind.pages;
    run.absentPages += behind.absentPages;
  }
  if (run.first > segment.firstPage && entries_[run.first - 1].state == RunState::kFree) {
    const Run before = removeFreeRun(bins, run.first - entries_[run.first - 1].pages);
    run.recentPages = run.recentPages > 0 ? before.pages + run.recentPages : before.recentPages;
    run.first = before.first;
    run.pages += before.pages;
    run.absentPages += before.absentPages;
  }
  insertFreeRun(bins, run);
  return run.pages;
}

uint32_t PageArena::countAbsent(uint32_t first, uint32_t end) const noexcept {
  uint32_t count = 0;
  for (uint32_t page = first; page < end; ++page) count += entries_[page].absent ? 1 : 0;
  return count;
}

void PageArena::setAbsent(uint32_t first, uint32_t end, bool absent) noexcept {
  for (uint32_t page = first; page < end; ++page) entries_[page].absent = absent;
}

PageArena::Run PageArena::takeRun(uint32_t pages, Fit fit) noexcept {
  constexpr uint32_t kAnyPages = UINT32_MAX;
  Run taken;
  if (fit == Fit::kBest) {
    if (pages > kLargestSmallPages) {
      taken =
          takeFrom(binsOf(SegmentUse::kLarge), pages, pages <= kAnyPages / 2 ? pages * 2 : pages);
    }
    if (taken.first == 0) taken = takeFrom(binsOf(SegmentUse::kMany), pages, kAnyPages);
  } else {
    taken = takeFrom(binsOf(SegmentUse::kMany), pages, kAnyPages);
    if (taken.first == 0) taken = takeFrom(binsOf(SegmentUse::kLarge), pages, kAnyPages);
  }
  return taken;
}

// Takes the front of a run of at most `mostPages`. Runs whose pages are all present come first.
PageArena::Run PageArena::takeFrom(Bins& bins, uint32_t pages, uint32_t mostPages) noexcept {
  for (bool absentToo = absentPages_ == 0;; absentToo = true) {
    for (uint32_t bin = binOf(pages); bin <= binOf(mostPages); ++bin) {
      for (uint32_t run = bins[bin]; run != 0; run = entries_[run].next) {
        const PageEntry& head = entries_[run];
        if (head.pages < pages || head.pages > mostPages) continue;
        if (head.absentPages > 0 && !absentToo) continue;
        Run whole = removeFreeRun(bins, run);
        Run taken{run, pages, 0, whole.absentPages};
        if (whole.pages > pages) {
          if (whole.absentPages > 0 && whole.absentPages < whole.pages) {
            taken.absentPages = countAbsent(run, run + pages);
          } else if (whole.absentPages > 0) {
            taken.absentPages = pages;
          }
          insertFreeRun(bins, {run + pages, whole.pages - pages,
                               whole.recentPages > pages ? whole.recentPages - pages : 0,
                               whole.absentPages - taken.absentPages});
        }
        return taken;
      }
    }
    if (absentToo) return {};
  }
}

void* PageArena::allocate(size_t bytes, Fit fit) noexcept {
  if (bytes == 0 || bytes > reservation_.bytes()) return nullptr;
  const auto pages = static_cast<uint32_t>(roundUpToPages(bytes) / kPageBytes);
  base::MutexLock lock(mutex_);
  Run run = takeRun(pages, fit);
  while (run.first == 0 && trimming_) {
    lock.unlock();
    { const base::MutexLock trimmed(trimMutex_); }
    lock.lock();
    run = takeRun(pages, fit);
  }
  if (run.first == 0) return nullptr;
  const bool absent = run.absentPages > 0;
  if (absent) {
    const size_t held = heldLocked();
    if (held > heldLimit_ || run.absentPages * kPageBytes > heldLimit_ - held) {
      run.recentPages = 0;
      mergeFreeRun(*segmentOfPage(run.first), run);
      return nullptr;
    }
    absentPages_ -= run.absentPages;
    setAbsent(run.first, run.first + pages, false);
  }
  PageEntry& entry = entries_[run.first];
  entry.state = RunState::kUsed;
  entry.pages = pages;
  entry.references = 1;
  bytesInUse_ += static_cast<size_t>(pages) * kPageBytes;
  if (absent) {
    lock.unlock();
    if (!fillRun(run.first, pages)) return nullptr;
  }
  return addressOf(run.first);
}

// Gets the pages of a run in use from the system. Without the lock, because it takes milliseconds.
bool PageArena::fillRun(uint32_t first, uint32_t pages) noexcept {
  int object = -1;
  size_t offset = 0;
  const size_t bytes = static_cast<size_t>(pages) * kPageBytes;
  {
    base::MutexLock lock(mutex_);
    const Segment& segment = *segmentOfPage(first);
    // A segment with a run in use is not removed.
    object = segment.object.get();
    offset = static_cast<size_t>(first - segment.firstPage) * kPageBytes;
  }
  try {
    allocatePages(object, offset, bytes, "shared memory");
#ifndef MADV_POPULATE_WRITE
    constexpr int MADV_POPULATE_WRITE = 23;
#endif
    // Kernels before 5.14 do not know it: then the first accesses fault.
    static_cast<void>(::madvise(addressOf(first), bytes, MADV_POPULATE_WRITE));
    return true;
  } catch (const base::SystemCallError& error) {
    releasePages(object, offset, bytes);
    base::MutexLock lock(mutex_);
    setAbsent(first, first + pages, true);
    absentPages_ += pages;
    bytesInUse_ -= bytes;
    entries_[first].state = RunState::kNone;
    mergeFreeRun(*segmentOfPage(first), {first, pages, 0, pages});
    return false;
  }
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
  return page < segment.endPage() ? &segment : nullptr;
}

void PageArena::addReference(const void* block) noexcept {
  base::MutexLock lock(mutex_);
  ++entries_[pageOf(block)].references;
}

uint32_t PageArena::references(const void* block) const noexcept {
  base::MutexLock lock(mutex_);
  const PageEntry& entry = entries_[pageOf(block)];
  return entry.state == RunState::kUsed ? entry.references : 0;
}

PageArena::Freed PageArena::dropReference(const void* block) noexcept {
  base::MutexLock lock(mutex_);
  const uint32_t first = pageOf(block);
  PageEntry& entry = entries_[first];
  if (--entry.references != 0) return Freed::kNothing;
  if (keepers_ == 0) return freeRun(first);
  entry.next = kept_;
  kept_ = first;
  return Freed::kNothing;
}

PageArena::Freed PageArena::freeRun(uint32_t first) noexcept {
  PageEntry& entry = entries_[first];
  const uint32_t pages = entry.pages;
  entry.state = RunState::kNone;
  bytesInUse_ -= static_cast<size_t>(pages) * kPageBytes;
  const Segment& segment = *segmentOfPage(first);
  const bool whole = mergeFreeRun(segment, {first, pages, pages, 0}) == segment.pages;
  if (!hasIdleLocked()) return Freed::kNothing;
  return whole && !segment.reserve ? Freed::kSegment : Freed::kMemory;
}

void PageArena::keepSegmentOf(const void* block) noexcept {
  base::MutexLock lock(mutex_);
  for (Segment& segment : segments_) {
    const uint32_t page = pageOf(block);
    if (page >= segment.firstPage && page < segment.endPage()) segment.kept = true;
  }
}

PageArena::TrimStep PageArena::trim(TrimRule rule, uint32_t from) noexcept {
  base::MutexLock step(trimMutex_);
  TrimStep result;
  std::array<TrimmedRun, kRunsPerStep> runs;
  size_t count = 0;
  {
    base::MutexLock lock(mutex_);
    count = takeForTrim(rule, from, runs, result);
    trimming_ = count > 0;
  }
  for (TrimmedRun& each : std::span(runs).first(count)) {
    const size_t bytes = static_cast<size_t>(each.end - each.from) * kPageBytes;
    each.done = releasePages(each.object, each.offset, bytes);
    if (!each.removes) continue;
    // If this fails, the segment's pages stay mapped until a later segment takes their place.
    static_cast<void>(::mmap(addressOf(each.from), bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
  }
  base::MutexLock lock(mutex_);
  for (const TrimmedRun& each : std::span(runs).first(count)) {
    Run run = each.run;
    if (each.removes) {
      result.bytes += static_cast<size_t>(run.pages - run.absentPages) * kPageBytes;
      result.removed[result.removedCount++] = segmentOfPage(run.first)->id;
      removeSegment(run.first);
      continue;
    }
    entries_[run.first].state = RunState::kNone;
    if (each.done) {
      const uint32_t present = each.end - each.from - countAbsent(each.from, each.end);
      setAbsent(each.from, each.end, true);
      run.absentPages += present;
      absentPages_ += present;
      result.bytes += static_cast<size_t>(present) * kPageBytes;
    }
    mergeFreeRun(*segmentOfPage(run.first), run);
  }
  trimming_ = false;
  return result;
}

// Pages from `first` on until `most` present ones are among them; an empty range if all are absent.
PageArena::PageRange PageArena::presentPart(uint32_t first, uint32_t end,
                                            uint32_t most) const noexcept {
  while (first < end && entries_[first].absent) ++first;
  PageRange part{first, first};
  for (uint32_t present = 0; part.end < end && present < most; ++part.end) {
    present += entries_[part.end].absent ? 0 : 1;
  }
  return part;
}

size_t PageArena::takeForTrim(TrimRule rule, uint32_t from,
                              std::array<TrimmedRun, kRunsPerStep>& runs, TrimStep& step) noexcept {
  const bool idle = rule == TrimRule::kIdle;
  uint32_t left = kBytesPerStep / kPageBytes;  // present pages that this step may return
  size_t count = 0;
  size_t removed = 0;
  for (const Segment& segment : segments_) {
    if (segment.kept || segment.endPage() <= from) continue;
    for (uint32_t page = segment.firstPage; page < segment.endPage();) {
      PageEntry& head = entries_[page];
      const uint32_t next = page + head.pages;
      if (next <= from || head.state != RunState::kFree) {
        page = next;
        continue;
      }
      if (count == runs.size() || removed == kMostRemoved || left == 0) {
        step.next = std::max(page, from);
        return count;
      }
      const uint32_t recent = idle ? std::min(head.recentPages, head.pages) : 0;
      const bool wholly = head.pages == segment.pages && recent == 0 && !segment.reserve;
      const uint32_t present = head.pages - head.absentPages;
      const bool removes = wholly && present <= left;
      PageRange part{page, next};
      if (!removes) {
        part.end = page;
        const bool gives = wholly || (rule != TrimRule::kSegments && !(idle && segment.reserve));
        if (gives && present > 0) part = presentPart(std::max(page + recent, from), next, left);
      }
      const bool complete = part.first == part.end || part.end == next;
      head.recentPages = complete ? 0 : recent;
      if (part.first < part.end) {
        runs[count] = {.run = removeFreeRun(binsOf(segment.use), page),
                       .from = part.first,
                       .end = part.end,
                       .object = segment.object.get(),
                       .offset = static_cast<size_t>(part.first - segment.firstPage) * kPageBytes,
                       .removes = removes,
                       .done = false};
        head.state = RunState::kTrimmed;
        ++count;
        removed += removes ? 1 : 0;
        left -= removes ? present : part.end - part.first - countAbsent(part.first, part.end);
        if (!complete) {
          step.next = part.end;
          return count;
        }
      }
      page = next;
    }
  }
  return count;
}

void PageArena::removeSegment(uint32_t firstPage) noexcept {
  const auto found = std::find_if(segments_.begin(), segments_.end(), [&](const Segment& segment) {
    return segment.firstPage == firstPage;
  });
  segmentBytes_ -= static_cast<size_t>(found->pages) * kPageBytes;
  absentPages_ -= countAbsent(found->firstPage, found->endPage());
  std::fill(entries_ + found->firstPage, entries_ + found->endPage(), PageEntry{});
  segments_.erase(found);
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
  return BlockReference{addressOf(static_cast<uint32_t>(head)), *location};
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
    if (entry.state != RunState::kNone || head == segment->firstPage) return std::nullopt;
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
    return addressOf(page);
  }
  return nullptr;
}

void PageArena::restoreSharedPages(const void* block) {
  base::MutexLock lock(mutex_);
  const uint32_t page = pageOf(block);
  const Segment& segment = *segmentOfPage(page);
  mapSharedAt(
      addressOf(page), segment.object, static_cast<size_t>(page - segment.firstPage) * kPageBytes,
      static_cast<size_t>(entries_[page].pages) * kPageBytes, Access::kReadWrite, Prefault::kYes);
}

void PageArena::leaveSegments() noexcept {
  base::MutexLock lock(mutex_);
  for (Segment& segment : segments_) {
    uint32_t page = segment.firstPage;
    while (page < segment.endPage()) {
      const PageEntry& run = entries_[page];
      std::byte* data = addressOf(page);
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
  for (Bins& bins : bins_) bins.fill(0);
}

size_t PageArena::capacityBytes() const noexcept {
  base::MutexLock lock(mutex_);
  return segmentBytes_;
}

size_t PageArena::heldBytes() const noexcept {
  base::MutexLock lock(mutex_);
  return heldLocked();
}

size_t PageArena::largestFreeBlock() const noexcept {
  base::MutexLock lock(mutex_);
  uint32_t largest = 0;
  for (const Bins& bins : bins_) {
    for (uint32_t bin = kBins; bin-- > binOf(std::max(largest, uint32_t{1}));) {
      for (uint32_t run = bins[bin]; run != 0; run = entries_[run].next) {
        largest = std::max(largest, entries_[run].pages);
      }
    }
  }
  return static_cast<size_t>(largest) * kPageBytes;
}

size_t PageArena::segmentCount() const noexcept {
  base::MutexLock lock(mutex_);
  return segments_.size();
}

size_t PageArena::reserveBytes() const noexcept {
  base::MutexLock lock(mutex_);
  return reserveBytes_;
}

bool PageArena::holdsMoreThanReserve() const noexcept {
  base::MutexLock lock(mutex_);
  return heldLocked() > reserveBytes_;
}

bool PageArena::hasIdleMemory() const noexcept {
  base::MutexLock lock(mutex_);
  return hasIdleLocked();
}

size_t PageArena::bytesInUse() const noexcept {
  base::MutexLock lock(mutex_);
  return bytesInUse_;
}

}  // namespace isopool::ipc
