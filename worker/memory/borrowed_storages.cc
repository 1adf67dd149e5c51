// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/borrowed_storages.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "base/system_call.h"
#include "ipc/crash_point.h"
#include "worker/memory/channel_memory.h"
#include "worker/memory/privatised_ranges.h"
#include "worker/process/user_forks.h"

namespace isopool::worker {

/// One borrowed storage. Its address is the context of the storage's data pointer.
struct BorrowedRange {
  std::shared_ptr<ChannelMemory> memory;
  BorrowedRange* newer = nullptr;
  BorrowedRange* older = nullptr;
  std::byte* data = nullptr;
  size_t bytes = 0;            ///< of the storage
  std::byte* pages = nullptr;  ///< the first page of the storage
  size_t mappedBytes = 0;      ///< of these pages
  uint64_t call = 0;
  InputSegment* segment = nullptr;  ///< of an input; null: a block of the output arena
  void* block = nullptr;            ///< of the output arena, referenced; null: none, or no longer
  ipc::Lease lease;                 ///< generation 0: none, or returned
  ipc::Mapping window;              ///< a second mapping, if an earlier call uses the pages
  BorrowedPages* shared = nullptr;  ///< its group of pages; null: none yet, or a window
  bool privatised = false;
};

c10::Storage BorrowedStorages::makeStorage(std::unique_ptr<BorrowedRange> range, uint64_t bytes) {
  BorrowedRange* context = range.release();
  context->memory->borrowed.link(*context);
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
      c10::DataPtr(context->data, context, &BorrowedStorages::release,
                   c10::Device(c10::DeviceType::CPU)),
      // An input may be resized, as in one process: it then moves to memory of its own.
      c10::GetCPUAllocator(), /*resizable=*/true));
}

c10::Storage BorrowedStorages::lent(const std::shared_ptr<ChannelMemory>& memory,
                                    InputSegment& segment, uint64_t offset, uint64_t bytes,
                                    ipc::Lease lease) {
  auto range = std::make_unique<BorrowedRange>();
  range->memory = memory;
  range->segment = &segment;
  const uint64_t firstPage = offset / ipc::kPageBytes * ipc::kPageBytes;
  range->bytes = bytes;
  range->pages = segment.mapping.data() + firstPage;
  range->mappedBytes = ipc::roundUpToPages(offset + bytes) - firstPage;
  if (memory->borrowed.earlierCallHas(range->pages, range->mappedBytes)) {
    range->window = ipc::mapShared(segment.object, firstPage, range->mappedBytes,
                                   ipc::Access::kReadWrite, ipc::Prefault::kNo);
    range->pages = range->window.data();
  }
  range->data = range->pages + (offset - firstPage);
  range->lease = lease;
  return makeStorage(std::move(range), bytes);
}

c10::Storage BorrowedStorages::home(const std::shared_ptr<ChannelMemory>& memory, void* block,
                                    uint64_t bytes) {
  auto range = std::make_unique<BorrowedRange>();
  range->memory = memory;
  range->data = static_cast<std::byte*>(block);
  range->bytes = bytes;
  range->mappedBytes = ipc::roundUpToPages(bytes);
  if (memory->output.isPrivatised(block) ||
      memory->borrowed.earlierCallHas(range->data, range->mappedBytes)) {
    range->window = memory->output.mapWindow(*memory->output.arena().locate(block));
    range->data = range->window.data();
  }
  memory->output.addReference(block);
  range->pages = range->data;
  range->block = block;
  return makeStorage(std::move(range), bytes);
}

void BorrowedStorages::read(const InputSegment& segment, uint64_t offset, std::span<std::byte> to) {
  const std::byte* from = segment.mapping.data() + offset;
  if (!hasPagesAt(from, to.size())) {
    std::memcpy(to.data(), from, to.size());
    return;
  }
  while (!to.empty()) {
    const ssize_t got =
        ::pread(segment.object.get(), to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    // A sealed object has all its bytes.
    if (got <= 0) throw base::SystemCallError("pread", "a segment for inputs", errno);
    offset += static_cast<uint64_t>(got);
    to = to.subspan(static_cast<size_t>(got));
  }
}

void BorrowedStorages::link(BorrowedRange& range) {
  range.call = call_;
  base::MutexLock lock(mutex_);
  range.older = newest_;
  if (newest_ != nullptr) newest_->newer = &range;
  newest_ = &range;
}

void BorrowedStorages::unlink(BorrowedRange& range) {
  if (range.newer != nullptr) {
    range.newer->older = range.older;
  } else {
    newest_ = range.older;
  }
  if (range.older != nullptr) range.older->newer = range.newer;
}

BorrowedPages* BorrowedStorages::pagesAt(const std::byte* begin, size_t bytes) {
  const auto after = pages_.lower_bound(begin + bytes);
  if (after == pages_.begin()) return nullptr;
  BorrowedPages& before = std::prev(after)->second;
  return before.end() > begin ? &before : nullptr;
}

bool BorrowedStorages::earlierCallHas(const std::byte* begin, size_t bytes) {
  if (groupedCall_ + 1 < call_) {
    base::MutexLock lock(mutex_);
    groupPages();
    groupedCall_ = call_ - 1;
  }
  return hasPagesAt(begin, bytes);
}

bool BorrowedStorages::hasPagesAt(const std::byte* begin, size_t bytes) {
  if (pagesCount_.load(std::memory_order_relaxed) == 0) return false;
  base::MutexLock lock(mutex_);
  return pagesAt(begin, bytes) != nullptr;
}

// Storages that share a page belong to one call, as earlierCallHas() ensures.
void BorrowedStorages::groupPages() {
  std::vector<BorrowedRange*> ranges;
  for (BorrowedRange* range = newest_; range != nullptr && range->call > groupedCall_;
       range = range->older) {
    if (range->shared == nullptr && !range->window.valid() && range->bytes > 0) {
      ranges.push_back(range);
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const auto* one, const auto* two) { return one->pages < two->pages; });
  for (BorrowedRange* range : ranges) {
    range->shared = pagesAt(range->pages, range->mappedBytes);
    if (range->shared == nullptr) {
      range->shared = &pages_[range->pages];
      range->shared->begin = range->pages;
      pagesCount_.store(pages_.size(), std::memory_order_relaxed);
    }
    BorrowedPages& shared = *range->shared;
    shared.bytes = static_cast<size_t>(std::max(shared.end(), range->pages + range->mappedBytes) -
                                       shared.begin);
    ++shared.ranges;
  }
}

// True if the storage was the last one of its pages.
bool BorrowedStorages::leavePages(BorrowedRange& range) {
  // In no group yet: no later call has brought a storage in its pages.
  if (range.shared == nullptr) return !range.window.valid();
  if (--range.shared->ranges > 0) return false;
  const BorrowedPages left = *range.shared;
  pages_.erase(left.begin);
  pagesCount_.store(pages_.size(), std::memory_order_relaxed);
  // OutputBlocks::free() restores the pages of a block.
  if (!left.privatised || range.segment == nullptr) return true;
  if (detached_ || range.segment->rangesLeft > 0) {
    forgetPrivatisedRange();
    return true;
  }
  endPrivatisedRange(left.begin, left.bytes);
  ipc::mapSharedAt(left.begin, range.segment->object,
                   static_cast<size_t>(left.begin - range.segment->mapping.data()), left.bytes,
                   ipc::Access::kReadWrite, ipc::Prefault::kNo);
  ipc::reachCrashPoint(ipc::CrashPoint::kKeptBlockRestored);
  return true;
}

bool BorrowedStorages::privatise(ChannelMemory& memory, BorrowedRange& range) {
  if (range.privatised || range.bytes == 0) return false;
  if (range.window.valid()) {
    if (!privatiseRange(range.pages, range.mappedBytes)) return false;
  } else {
    if (range.shared == nullptr) return false;
    BorrowedPages& shared = *range.shared;
    if (!shared.privatised) {
      shared.privatised = range.block != nullptr
                              ? memory.output.privatise(range.block, shared.bytes)
                              : privatiseRange(shared.begin, shared.bytes);
    }
    if (!shared.privatised) return false;
  }
  range.privatised = true;
  if (range.lease.generation != 0) {
    ipc::returnLease(memory.end.returns(), std::exchange(range.lease, {}));
  }
  if (range.window.valid() && range.block != nullptr) {
    memory.output.dropReference(std::exchange(range.block, nullptr));
  }
  return true;
}

bool BorrowedStorages::privatiseKept(ChannelMemory& memory, CopyCounts& copies) {
  base::MutexLock lock(mutex_);
  try {
    groupPages();
    groupedCall_ = call_;
  } catch (const std::bad_alloc&) {
    // Treated as a failure to privatise: storages without a group stay shared.
  }
  bool all = true;
  for (BorrowedRange* range = newest_; range != nullptr && range->call == call_;
       range = range->older) {
    if (privatise(memory, *range)) copies.count(ipc::CopyReason::kKeptByModel, range->bytes);
    all = all && (range->privatised || range->bytes == 0);
  }
  return all;
}

void BorrowedStorages::release(void* context) {
  // A forked child shares the pages and must not return anything.
  if (isForkedChild()) return;
  std::unique_ptr<BorrowedRange> range(static_cast<BorrowedRange*>(context));
  ChannelMemory& memory = *range->memory;
  BorrowedStorages& self = memory.borrowed;
  bool lastOfPages = false;
  {
    base::MutexLock lock(self.mutex_);
    self.unlink(*range);
    lastOfPages = self.leavePages(*range);
    if (range->segment != nullptr && range->segment->rangesLeft > 0) self.leaveSegment(*range);
  }
  if (range->privatised && range->window.valid()) {
    endPrivatisedRange(range->pages, range->mappedBytes);
  }
  if (range->lease.generation != 0) {
    ipc::returnLease(memory.end.returns(), range->lease);
  }
  if (range->block != nullptr) {
    if (lastOfPages) {
      memory.output.free(range->block);
    } else {
      memory.output.dropReference(range->block);
    }
  }
}

// Of a segment that the client has removed.
void BorrowedStorages::leaveSegment(BorrowedRange& range) {
  if (--range.segment->rangesLeft > 0) return;
  std::erase_if(left_, [&](const auto& segment) { return segment.get() == range.segment; });
}

void BorrowedStorages::leave(std::unique_ptr<InputSegment> segment) noexcept {
  base::MutexLock lock(mutex_);
  try {
    left_.reserve(left_.size() + 1);
    segment->rangesLeft = leaveLocked(*segment);
    if (segment->rangesLeft > 0) left_.push_back(std::move(segment));
  } catch (const std::bad_alloc&) {
    // The segment stays mapped: storages may use its addresses.
    segment.release()->mapping.release();
  }
}

// Replaces the segment's pages: private ones where storages are alive, none elsewhere. Any page
// that stayed shared would keep all memory of the segment allocated. Returns the number of those
// storages.
size_t BorrowedStorages::leaveLocked(InputSegment& segment) {
  size_t ranges = 0;
  struct Alive {
    std::byte* end = nullptr;
    bool isPrivate = false;
  };
  std::map<std::byte*, Alive> alive;  // of the segment's addresses, by their begin
  for (BorrowedRange* range = newest_; range != nullptr; range = range->older) {
    if (range->segment != &segment) continue;
    if (range->window.valid()) {
      if (!range->privatised) range->privatised = privatiseRange(range->pages, range->mappedBytes);
      range->segment = nullptr;
      continue;
    }
    ++ranges;
    if (range->bytes == 0) continue;
    Alive& its = alive[range->pages];
    its.end = std::max(its.end, range->pages + range->mappedBytes);
    its.isPrivate = range->shared != nullptr && range->shared->privatised;
  }
  std::byte* cursor = segment.mapping.data();
  std::byte* const segmentEnd = cursor + segment.mapping.bytes();
  const auto drop = [&](std::byte* to) {
    if (cursor >= to) return;
    ::mmap(cursor, static_cast<size_t>(to - cursor), PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  };
  for (const auto& [first, its] : alive) {
    drop(first);
    std::byte* const begin = std::max(cursor, first);
    if (its.end > begin && !its.isPrivate) {
      ipc::privatisePages(begin, static_cast<size_t>(its.end - begin));
    }
    cursor = std::max(cursor, its.end);
  }
  drop(segmentEnd);
  segment.object.close();
  return ranges;
}

void BorrowedStorages::detach(ChannelMemory& memory) noexcept {
  base::MutexLock lock(mutex_);
  detached_ = true;
  for (BorrowedRange* range = newest_; range != nullptr; range = range->older) {
    if (range->segment != nullptr || !range->window.valid() || range->privatised) continue;
    range->privatised = privatiseRange(range->pages, range->mappedBytes);
  }
  for (const auto& segment : memory.inputs.all()) {
    if (segment != nullptr) leaveLocked(*segment);
  }
}

// Blocks of the output arena that are used at their own addresses are in OutputBlocks::addLive().
void BorrowedStorages::addLive(std::vector<ipc::LiveBlocks>& all) {
  base::MutexLock lock(mutex_);
  std::map<InputSegment*, std::vector<std::span<const std::byte>>> segments;
  for (BorrowedRange* range = newest_; range != nullptr; range = range->older) {
    if (range->bytes == 0) continue;
    const std::span<const std::byte> pages(range->pages, range->mappedBytes);
    if (range->window.valid()) {
      if (!range->privatised) all.push_back({range->pages, range->mappedBytes, {pages}});
    } else if (range->segment != nullptr && range->segment->rangesLeft == 0 && !detached_) {
      // Also those with private pages: the image takes the place of the whole segment.
      segments[range->segment].push_back(pages);
    }
  }
  for (auto& [segment, blocks] : segments) {
    all.push_back({segment->mapping.data(), segment->mapping.bytes(), std::move(blocks)});
  }
}

}  // namespace isopool::worker
