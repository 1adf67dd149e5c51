// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "ipc/memory/memory_object.h"

namespace isopool::ipc {

/// The location of a block, in a form that is valid in every process.
struct BlockLocation {
  base::SegmentId segment;
  uint64_t offset = 0;  ///< from the segment's start, a multiple of kPageBytes
  uint64_t bytes = 0;   ///< whole pages
};

/// The allocator of one arena: allocates blocks, which are runs of whole pages of shared segments.
/// All its records are private memory of the process that owns the arena, so the death of another
/// process can't damage them. The segments lie one after another in one reservation of address
/// space, so that the block of a pointer is found in constant time.
///
/// A block is freed when its last reference is dropped: the owner's storage holds one, and each
/// lease to another process holds one. Any thread may call any member, except addSegment(), which
/// only one thread at a time may call. A forked child must not use its parent's arena. No member
/// waits for another process; the lock is held for microseconds, except by restoreSharedPages() and
/// leaveSegments().
class PageArena {
 public:
  /// Reserves address space for segments of `capacityBytes` in all. Throws SystemCallError.
  explicit PageArena(size_t capacityBytes);
  /// The most private memory that an arena whose segments have `capacityBytes` in all uses for its
  /// records: RLIMIT_DATA and overcommitment count it.
  static size_t bookBytes(size_t capacityBytes) noexcept;
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  /// True if the reservation has room for a segment of that size.
  bool hasRoomFor(size_t bytes) const noexcept;
  /// Maps `object` (whole pages, sealed kFixedSize) as a further segment and owns the descriptor
  /// from then on. Returns false if the reservation has no room left. Throws SystemCallError and
  /// std::bad_alloc. In all these cases nothing has changed and the descriptor is closed.
  bool addSegment(base::SegmentId id, base::Fd object, size_t bytes, Prefault prefault);

  /// A block of at least `bytes`, page-aligned, with one reference. nullptr if no segment has room:
  /// it never waits and never adds a segment. The content is undefined.
  void* allocate(size_t bytes) noexcept;

  struct BlockReference {
    const void* block;  ///< its first byte
    BlockLocation location;
  };
  /// Adds a reference to the live block that contains `address`; nullopt if there is none.
  std::optional<BlockReference> referTo(const void* address) noexcept;
  /// In these three, `block` must be the first byte of a live block.
  void addReference(const void* block) noexcept;
  void dropReference(const void* block) noexcept;
  uint32_t references(const void* block) const noexcept;

  /// True if `address` lies in the reservation, in which all segments lie.
  bool contains(const void* address) const noexcept {
    return static_cast<const std::byte*>(address) >= reservation_.data() &&
           static_cast<const std::byte*>(address) < reservation_.data() + reservation_.bytes();
  }

  /// The live block that contains `address`; nullopt if there is none.
  std::optional<BlockLocation> locate(const void* address) const noexcept;
  /// The first byte of the live block that begins at exactly this location, or nullptr.
  void* find(base::SegmentId segment, uint64_t offset) const noexcept;

  /// Maps the shared pages again under a block that was privatised, whose content is lost. `block`
  /// must be the first byte of a live block. Throws SystemCallError.
  void restoreSharedPages(const void* block);

  /// Separates the arena from its segments when their other user is gone: live blocks become
  /// private memory at the same addresses, and the descriptors are closed. Nothing may be allocated
  /// or restored afterwards.
  void leaveSegments() noexcept;

  /// The reservation, which contains all blocks.
  std::span<const std::byte> addressSpace() const noexcept {
    return {reservation_.data(), reservation_.bytes()};
  }

  size_t capacityBytes() const noexcept;  ///< size of all segments
  size_t bytesInUse() const noexcept;     ///< size of all live blocks

 private:
  enum class RunState : uint8_t { kNone, kFree, kUsed };
  /// The record of one page. The record of a run's first page describes the run. Of a free run, the
  /// last page's `state` and `pages` are valid, too, so that the next run can merge with it.
  struct PageEntry {
    uint32_t pages = 0;
    uint32_t next = 0;
    uint32_t previous = 0;
    uint32_t references = 0;
    RunState state = RunState::kNone;
  };
  struct Segment {
    base::SegmentId id;
    base::Fd object;
    uint32_t firstPage = 0;
    uint32_t pages = 0;
  };

  static constexpr uint32_t kExactBins = 64;
  static constexpr uint32_t kBins = kExactBins + 32;
  static uint32_t binOf(uint32_t pages) noexcept;

  void insertFreeRun(uint32_t firstPage, uint32_t pages) noexcept ISOPOOL_REQUIRES(mutex_);
  void removeFreeRun(uint32_t firstPage) noexcept ISOPOOL_REQUIRES(mutex_);
  uint32_t takeRun(uint32_t pages) noexcept ISOPOOL_REQUIRES(mutex_);
  uint32_t pageOf(const void* address) const noexcept;
  bool hasRoomForLocked(size_t bytes) const noexcept ISOPOOL_REQUIRES(mutex_);
  void openBooksFor(uint32_t pages) ISOPOOL_REQUIRES(mutex_);
  const Segment* segmentOfPage(uint32_t page) const noexcept ISOPOOL_REQUIRES(mutex_);
  std::optional<BlockLocation> locateLocked(const void* address) const noexcept
      ISOPOOL_REQUIRES(mutex_);

  Mapping reservation_;
  Mapping entriesMemory_;
  size_t openBookBytes_ ISOPOOL_GUARDED_BY(mutex_) =
      0;  // writable bytes of entriesMemory_; the rest is address space only
  PageEntry* entries_ = nullptr;

  mutable base::Mutex mutex_;
  std::vector<Segment> segments_ ISOPOOL_GUARDED_BY(mutex_);
  std::array<uint32_t, kBins> bins_ ISOPOOL_GUARDED_BY(mutex_){};
  uint32_t usedPages_ ISOPOOL_GUARDED_BY(mutex_) = 1;  // page 0 is never used, so that 0 means none
  size_t segmentBytes_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  size_t bytesInUse_ ISOPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace isopool::ipc
