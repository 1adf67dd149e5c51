// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/stored_bytes.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "base/system_call.h"
#include "base/without_cancellation.h"
#include "client/program/copy_counter.h"
#include "client/program/process_fork.h"
#include "ipc/memory/page_history.h"

namespace isopool::client {

namespace {

// To map, read and unmap a range takes 7 us and more, to copy 16 KiB takes 0.3 us.
constexpr uint64_t kLongestCopy = 16384;
// The kernel allows a process 65530 mappings by default, and the program needs some itself.
constexpr size_t kMostMapped = 16384;
constexpr size_t kMostUnused = 16;

std::atomic<size_t> mappedRanges{0};

void forgetRange(void* context) { delete static_cast<std::shared_ptr<StoredBytes>*>(context); }

// In a forked child it tells nothing: its parent's storages are not asked about there.
const ipc::PageHistory& pageHistory() {
  const base::WithoutCancellation complete;
  static const auto* history = new ipc::PageHistory;
  return *history;
}

}  // namespace

// ---- UnusedRanges ----------------------------------------------------------------------------

ipc::Mapping UnusedRanges::take(uint64_t begin, size_t bytes) {
  base::MutexLock lock(mutex_);
  const auto found = std::find_if(ranges_.rbegin(), ranges_.rend(), [&](const Range& range) {
    return range.begin == begin && range.mapping.bytes() == bytes;
  });
  if (found == ranges_.rend()) return {};
  ipc::Mapping mapping = std::move(found->mapping);
  bytes_ -= bytes;
  ranges_.erase(std::prev(found.base()));
  return mapping;
}

void UnusedRanges::put(uint64_t begin, ipc::Mapping mapping) {
  if (mapping.bytes() > mostBytes_) return;
  base::MutexLock lock(mutex_);
  const size_t bytes = mapping.bytes();
  ranges_.push_back({begin, std::move(mapping)});
  bytes_ += bytes;
  while (ranges_.size() > kMostUnused || bytes_ > mostBytes_) {
    bytes_ -= ranges_.front().mapping.bytes();
    ranges_.erase(ranges_.begin());
  }
}

void UnusedRanges::clear() {
  base::MutexLock lock(mutex_);
  ranges_.clear();
  bytes_ = 0;
}

// ---- StoredBytes -----------------------------------------------------------------------------

StoredBytes::StoredBytes(std::shared_ptr<UnusedRanges> unused)
    : unused_(std::move(unused)), generation_(forkGeneration()) {}

std::shared_ptr<StoredBytes> StoredBytes::of(const base::Fd& object, uint64_t begin, uint64_t end,
                                             std::shared_ptr<UnusedRanges> unused) {
  std::shared_ptr<StoredBytes> range(new StoredBytes(std::move(unused)));
  const bool isShort = end - begin <= kLongestCopy;
  if (isShort || !range->map(object, begin, end)) {
    range->copy(object, begin, end);
    countCopied(isShort ? ipc::CopyReason::kResultInline : ipc::CopyReason::kNoLease, end - begin);
  }
  return range;
}

StoredBytes::~StoredBytes() {
  if (!mapping_.valid()) return;
  mappedRanges.fetch_sub(1);
  // In a forked child a thread that is not there may hold the lock.
  if (generation_ != forkGeneration()) return;
  try {
    if (!pageHistory().written(mapping_.data(), mapping_.bytes())) {
      unused_->put(begin_ / ipc::kPageBytes * ipc::kPageBytes, std::move(mapping_));
    }
  } catch (const std::bad_alloc&) {
    // The next answer maps it anew.
  }
}

bool StoredBytes::map(const base::Fd& object, uint64_t begin, uint64_t end) {
  if (mappedRanges.fetch_add(1) < kMostMapped) {
    const uint64_t first = begin / ipc::kPageBytes * ipc::kPageBytes;
    const size_t bytes = ipc::roundUpToPages(end) - first;
    try {
      mapping_ = unused_->take(first, bytes);
      if (!mapping_.valid()) mapping_ = ipc::mapPrivate(object, first, bytes);
      data_ = mapping_.data() + (begin - first);
      begin_ = begin;
      return true;
    } catch (const base::SystemCallError&) {
      // No mapping or no address space is left.
    }
  }
  mappedRanges.fetch_sub(1);
  return false;
}

void StoredBytes::copy(const base::Fd& object, uint64_t begin, uint64_t end) {
  const base::WithoutCancellation complete;
  heapBytes_ = c10::GetDefaultCPUAllocator()->allocate(end - begin);
  data_ = static_cast<std::byte*>(heapBytes_.get());
  begin_ = begin;
  for (uint64_t done = 0; done < end - begin;) {
    const ssize_t got =
        ::pread(object.get(), data_ + done, end - begin - done, static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    TORCH_CHECK(got > 0, "stored bytes can't be read: ", std::strerror(got < 0 ? errno : EIO));
    done += static_cast<uint64_t>(got);
  }
}

c10::Storage StoredBytes::storage(uint64_t offset, uint64_t bytes) {
  auto context = std::make_unique<std::shared_ptr<StoredBytes>>(shared_from_this());
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
      c10::DataPtr(data_ + (offset - begin_), context.release(), &forgetRange,
                   c10::Device(c10::DeviceType::CPU)),
      c10::GetCPUAllocator(), /*resizable=*/true));
}

}  // namespace isopool::client
