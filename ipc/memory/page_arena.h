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
#include "ipc/memory/live_blocks.h"
#include "ipc/memory/memory_object.h"

namespace isopool::ipc {

/// The location of a block, in a form that is valid in every process.
struct BlockLocation {
  base::SegmentId segment;
  uint64_t offset = 0;  ///< from the segment's start, a multiple of kPageBytes
  uint64_t bytes = 0;   ///< whole pages
};

/// What a segment is for.
enum class SegmentUse : uint8_t {
  kMany,  ///< blocks of any size
  kLarge  ///< a large block: no small block may keep the segment in use when that one is free
};

/// Where a block may lie.
enum class Fit : uint8_t {
  kBest,  ///< a block of a kLarge segment has at least half of a free run
  kAny    ///< wherever it fits
};

/// Which free memory PageArena::trim() returns to the system.
enum class TrimRule : uint8_t {
  kIdle,      ///< what has been free since the last complete trim of this kind; not the reserve
  kSegments,  ///< free segments only, as far as possible
  kAll        ///< all that is free
};

/// The allocator of one arena: allocates blocks, which are runs of whole pages of shared segments.
/// All its records are private memory of the process that owns the arena, so the death of another
/// process can't damage them. The segments lie in one reservation of address space, so that the
/// block of a pointer is found in constant time.
///
/// A block is freed when its last reference is dropped: the owner's storage holds one, and each
/// lease to another process holds one. trim() returns free memory to the system: a free segment is
/// removed, a free run of another segment loses its pages (it becomes absent), which allocate()
/// gets back from the system. So the bytes held are those of the live blocks and of what became
/// free lately. The first kMany segment is the reserve: it is never removed.
///
/// Any thread may call any member, except addSegment(), which only one thread at a time may call. A
/// forked child must not use its parent's arena, except by becomePrivate(). No member waits for
/// another process; the lock is held for microseconds, except by restoreSharedPages() and
/// leaveSegments(). allocate() waits for one step of a trim if it finds no room while one runs.
class PageArena {
 public:
  /// The largest block that is not large, see SegmentUse.
  static constexpr size_t kLargestSmallBlock = size_t{2} << 20;

  /// Reserves address space for segments of `capacityBytes` in all. Throws SystemCallError.
  explicit PageArena(size_t capacityBytes);
  /// The most private memory that an arena whose segments have `capacityBytes` in all uses for its
  /// records: RLIMIT_DATA and overcommitment count it.
  static size_t bookBytes(size_t capacityBytes) noexcept;
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  /// allocate() does not take absent pages back from the system if heldBytes() would exceed
  /// `bytes`. Call before the first segment is added. Without a call there is no limit.
  void limitHeld(size_t bytes) noexcept { heldLimit_ = bytes; }

  /// By how much the records grow with a further segment of that size: less than bookBytes() if it
  /// takes addresses that a removed one had.
  size_t bookGrowth(size_t bytes) const noexcept;

  /// True if the reservation has room for a segment of that size.
  bool hasRoomFor(size_t bytes) const noexcept;
  /// Maps `object` (whole pages, sealed kFixedSize) as a further segment and owns the descriptor
  /// from then on. Returns false if the reservation has no room left. Throws SystemCallError and
  /// std::bad_alloc. In all these cases nothing has changed and the descriptor is closed.
  bool addSegment(base::SegmentId id, base::Fd object, size_t bytes, Prefault prefault,
                  SegmentUse use = SegmentUse::kMany);

  /// A block of at least `bytes`, page-aligned, with one reference. nullptr if no segment has room,
  /// or the system has no memory for absent pages: it never waits for another process and never
  /// adds a segment. The content is undefined.
  void* allocate(size_t bytes, Fit fit = Fit::kBest) noexcept;

  /// What dropReference() has freed: from kMemory on, more than the reserve's size is free now.
  enum class Freed : uint8_t { kNothing, kMemory, kSegment };

  struct BlockReference {
    const void* block;  ///< its first byte
    BlockLocation location;
  };
  /// Adds a reference to the live block that contains `address`; nullopt if there is none.
  std::optional<BlockReference> referTo(const void* address) noexcept;
  /// In these two, `block` must be the first byte of a live block.
  void addReference(const void* block) noexcept;
  Freed dropReference(const void* block) noexcept;
  /// Of a block that this arena has returned; 0 if it is free.
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

  /// The segment of the live block is never trimmed from now on: a driver has registered its pages.
  void keepSegmentOf(const void* block) noexcept;

  /// What one step of a trim returns at most: the kernel takes some 0.2 ms for it.
  static constexpr size_t kBytesPerStep = size_t{1} << 20;
  static constexpr size_t kMostRemoved = 64;
  /// The result of one step of a trim.
  struct TrimStep {
    size_t bytes = 0;  ///< returned to the system
    /// The segments that were removed: this process neither maps them nor has a descriptor.
    std::array<base::SegmentId, kMostRemoved> removed{};
    size_t removedCount = 0;
    uint32_t next = 0;  ///< for the next step; 0: the trim is complete
  };
  /// Runs one step of a trim, without the arena's lock while the kernel works. Begin with `from`
  /// 0, and continue with TrimStep::next.
  TrimStep trim(TrimRule rule, uint32_t from) noexcept;

  /// Maps the shared pages again under a block that was privatised, whose content is lost. `block`
  /// must be the first byte of a live block. Throws SystemCallError.
  void restoreSharedPages(const void* block);

  /// Separates the arena from its segments when their other user is gone: live blocks become
  /// private memory at the same addresses, and the descriptors are closed. Nothing may be
  /// allocated, restored or trimmed afterwards.
  void leaveSegments() noexcept;

  /// For the handlers of fork(): a child may walk the records only if they were not being changed.
  base::Mutex& recordsMutex() const noexcept ISOPOOL_RETURNS(mutex_) { return mutex_; }
  /// The size of all live blocks, with recordsMutex() held.
  size_t bytesInUseLocked() const noexcept ISOPOOL_REQUIRES(mutex_) { return bytesInUse_; }
  /// Until releaseFreedBlocks(), blocks whose last reference ends keep their memory and content: a
  /// forked child may still copy them. Each call needs one of releaseFreedBlocks().
  void keepFreedBlocks() noexcept ISOPOOL_REQUIRES(mutex_);
  void releaseFreedBlocks() noexcept;
  /// In a forked child: live blocks become private memory at the same addresses. Makes system calls
  /// only. False if there is no memory: then some are still shared. Nothing may be allocated
  /// afterwards.
  bool becomePrivate() noexcept ISOPOOL_REQUIRES(mutex_);
  /// Adds each segment that has live blocks to `all`. Throws std::bad_alloc.
  void addLive(std::vector<LiveBlocks>& all) const;

  /// The reservation, which contains all blocks.
  std::span<const std::byte> addressSpace() const noexcept {
    return {reservation_.data(), reservation_.bytes()};
  }

  size_t capacityBytes() const noexcept;     ///< size of all segments, absent pages included
  size_t heldBytes() const noexcept;         ///< of these, what the system has given
  size_t bytesInUse() const noexcept;        ///< size of all live blocks
  size_t largestFreeBlock() const noexcept;  ///< that allocate() may return
  size_t segmentCount() const noexcept;
  size_t reserveBytes() const noexcept;  ///< size of the reserve; 0: there is none yet
  /// True if more is held than the reserve: a trim by kIdle may return memory, now or when further
  /// blocks are free.
  bool holdsMoreThanReserve() const noexcept;
  /// True if more than the reserve's size is free.
  bool hasIdleMemory() const noexcept;

 private:
  enum class RunState : uint8_t {
    kNone,
    kFree,
    kUsed,
    kTrimmed  ///< free, but trim() has it: neither allocated nor merged
  };
  /// The record of one page. The record of a run's first page describes the run. Of a free run, the
  /// last page's `state` and `pages` are valid, too, so that the next run can merge with it.
  struct PageEntry {
    uint32_t pages = 0;
    uint32_t next = 0;
    uint32_t previous = 0;
    union {
      uint32_t references = 0;  ///< of a run in use
      /// Of a free run: at most so many of its first pages were in use since the last idle trim.
      uint32_t recentPages;
    };
    uint32_t absentPages = 0;  ///< of a free run
    RunState state = RunState::kNone;
    bool absent = false;  ///< of this one page: the system has its memory
  };
  struct Segment {
    base::SegmentId id;
    base::Fd object;
    uint32_t firstPage = 0;
    uint32_t pages = 0;
    SegmentUse use = SegmentUse::kMany;
    bool reserve = false;
    bool kept = false;  ///< see keepSegmentOf()

    uint32_t endPage() const { return firstPage + pages; }
  };
  /// A free run on its way into the bins, or out of them.
  struct Run {
    uint32_t first = 0;  ///< 0: none
    uint32_t pages = 0;
    uint32_t recentPages = 0;
    uint32_t absentPages = 0;
  };
  struct TrimmedRun {
    Run run;
    uint32_t from = 0;     ///< the first page that is given back
    uint32_t end = 0;      ///< behind the last one
    int object = -1;       ///< stays open: only trim() closes it
    size_t offset = 0;     ///< of `from` in the object
    bool removes = false;  ///< the whole segment
    bool done = false;
  };

  static constexpr uint32_t kExactBins = 64;
  static constexpr uint32_t kBins = kExactBins + 32;
  static constexpr uint32_t kLargestSmallPages = kLargestSmallBlock / kPageBytes;
  static constexpr size_t kRunsPerStep = 128;
  struct PageRange {
    uint32_t first = 0;
    uint32_t end = 0;
  };
  using Bins = std::array<uint32_t, kBins>;
  static uint32_t binOf(uint32_t pages) noexcept;

  Bins& binsOf(SegmentUse use) noexcept ISOPOOL_REQUIRES(mutex_) {
    return bins_[static_cast<size_t>(use)];
  }
  void insertFreeRun(Bins& bins, const Run& run) noexcept ISOPOOL_REQUIRES(mutex_);
  Run removeFreeRun(Bins& bins, uint32_t firstPage) noexcept ISOPOOL_REQUIRES(mutex_);
  uint32_t mergeFreeRun(const Segment& segment, Run run) noexcept ISOPOOL_REQUIRES(mutex_);
  Run takeRun(uint32_t pages, Fit fit) noexcept ISOPOOL_REQUIRES(mutex_);
  Run takeFrom(Bins& bins, uint32_t pages, uint32_t mostPages) noexcept ISOPOOL_REQUIRES(mutex_);
  Freed freeRun(uint32_t first) noexcept ISOPOOL_REQUIRES(mutex_);
  bool fillRun(uint32_t first, uint32_t pages) noexcept;
  uint32_t countAbsent(uint32_t first, uint32_t end) const noexcept ISOPOOL_REQUIRES(mutex_);
  void setAbsent(uint32_t first, uint32_t end, bool absent) noexcept ISOPOOL_REQUIRES(mutex_);
  PageRange presentPart(uint32_t first, uint32_t end, uint32_t most) const noexcept
      ISOPOOL_REQUIRES(mutex_);
  size_t takeForTrim(TrimRule rule, uint32_t from, std::array<TrimmedRun, kRunsPerStep>& runs,
                     TrimStep& step) noexcept ISOPOOL_REQUIRES(mutex_);
  void removeSegment(uint32_t firstPage) noexcept ISOPOOL_REQUIRES(mutex_);
  std::byte* addressOf(uint32_t page) const noexcept {
    return reservation_.data() + static_cast<size_t>(page) * kPageBytes;
  }
  uint32_t pageOf(const void* address) const noexcept;
  uint32_t roomFor(uint32_t pages) const noexcept ISOPOOL_REQUIRES(mutex_);
  size_t bookEnd(uint32_t pages) const noexcept;
  void openBooksFor(uint32_t pages) ISOPOOL_REQUIRES(mutex_);
  const Segment* segmentOfPage(uint32_t page) const noexcept ISOPOOL_REQUIRES(mutex_);
  size_t heldLocked() const noexcept ISOPOOL_REQUIRES(mutex_) {
    return segmentBytes_ - absentPages_ * kPageBytes;
  }
  bool hasIdleLocked() const noexcept ISOPOOL_REQUIRES(mutex_) {
    return heldLocked() > bytesInUse_ + reserveBytes_;
  }
  std::optional<BlockLocation> locateLocked(const void* address) const noexcept
      ISOPOOL_REQUIRES(mutex_);

  Mapping reservation_;
  Mapping entriesMemory_;
  size_t openBookBytes_ ISOPOOL_GUARDED_BY(mutex_) =
      0;  // writable bytes of entriesMemory_; the rest is address space only
  PageEntry* entries_ = nullptr;
  size_t heldLimit_ = SIZE_MAX;

  base::Mutex trimMutex_;  // held during a step of a trim; taken before mutex_
  mutable base::Mutex mutex_;
  std::vector<Segment> segments_ ISOPOOL_GUARDED_BY(mutex_);  // by their pages; page 0 is unused
  std::array<Bins, 2> bins_ ISOPOOL_GUARDED_BY(mutex_){};     // by SegmentUse
  size_t segmentBytes_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  size_t absentPages_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  size_t bytesInUse_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  size_t reserveBytes_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  bool trimming_ ISOPOOL_GUARDED_BY(mutex_) = false;
  uint32_t keepers_ ISOPOOL_GUARDED_BY(mutex_) = 0;  // calls of keepFreedBlocks()
  uint32_t kept_ ISOPOOL_GUARDED_BY(mutex_) = 0;     // blocks without reference, linked by `next`
};

}  // namespace isopool::ipc
