// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "ipc/memory/memory_object.h"

namespace isopool::client {

/// Mappings of ranges of one archive that no storage refers to any more and that were not written
/// to: the next answer with that range uses them again, without a page fault for every 64 KiB that
/// it reads. At most 16 of them. Any thread.
class UnusedRanges {
 public:
  /// `fileBytes`: unused ranges are not longer than that in all.
  explicit UnusedRanges(uint64_t fileBytes) : mostBytes_(fileBytes) {}

  /// A mapping of exactly that range, or an invalid one. The caller owns it.
  ipc::Mapping take(uint64_t begin, size_t bytes);
  /// Keeps the mapping, whose content must equal the archive's; unmaps the oldest if there are too
  /// many. `begin`: its place in the archive, in bytes. Throws std::bad_alloc.
  void put(uint64_t begin, ipc::Mapping mapping);
  /// Unmaps all. Call when the archive's memory object is replaced.
  void clear();

 private:
  struct Range {
    uint64_t begin;
    ipc::Mapping mapping;
  };
  const uint64_t mostBytes_;
  base::Mutex mutex_;
  std::vector<Range> ranges_ ISOPOOL_GUARDED_BY(mutex_);  // the oldest first
  uint64_t bytes_ ISOPOOL_GUARDED_BY(mutex_) = 0;
};

/// A range of a sealed archive as the tensors of one answer see it, copy-on-write: what is written
/// to them reaches neither the archive nor the tensors of another answer. Lives as long as one of
/// its storages, also longer than the archive, the worker and the manager. Any thread.
class StoredBytes : public std::enable_shared_from_this<StoredBytes> {
 public:
  /// The bytes from `begin` to `end` of `object`, which must contain them. Copied if they are at
  /// most 16 KiB long or no mapping is left, and counted then (countCopied()); mapped otherwise.
  /// Throws c10::Error if there is no memory for the copy.
  static std::shared_ptr<StoredBytes> of(const base::Fd& object, uint64_t begin, uint64_t end,
                                         std::shared_ptr<UnusedRanges> unused);
  ~StoredBytes();
  StoredBytes(const StoredBytes&) = delete;
  StoredBytes& operator=(const StoredBytes&) = delete;

  /// A storage over a part of the range, by its place in the archive; shares ownership of the
  /// range. The caller has checked that the part lies in it.
  c10::Storage storage(uint64_t offset, uint64_t bytes);

 private:
  explicit StoredBytes(std::shared_ptr<UnusedRanges> unused);
  bool map(const base::Fd& object, uint64_t begin, uint64_t end);
  void copy(const base::Fd& object, uint64_t begin, uint64_t end);

  const std::shared_ptr<UnusedRanges> unused_;
  const uint32_t generation_;  // of forks
  std::byte* data_ = nullptr;  // of the byte at begin_
  uint64_t begin_ = 0;
  ipc::Mapping mapping_;    // if it is mapped
  c10::DataPtr heapBytes_;  // if it is copied
};

}  // namespace isopool::client
