// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ipc/channel/layout.h"
#include "ipc/memory/page_arena.h"

/// What fork() does with the memory that this process shares with workers. A forked child gets a
/// private copy of each live block: the tensors of the input arena, the results that workers have
/// lent, and moved objects. The child's handler makes the copies before fork() returns there. The
/// thread that forks waits for that, so that what the parent does next is not seen in the child.
/// Other threads of the parent go on, but a block that is freed meanwhile is not used again before
/// the child has its copy. vfork() and posix_spawn() run no handlers, so they copy nothing and do
/// not wait.
///
/// If the live blocks are larger than ISOPOOL_FORK_COPY_LIMIT together, or if there is no
/// descriptor or no memory for the copy, the child gets none of them: an access is a segmentation
/// fault there. The program's logger gets a warning. If the setting is 0, the blocks stay shared.
namespace isopool::client {

struct LentBlock;

/// The blocks that one worker has lent to this process, by lease. Any thread. In the child of a
/// fork it tells which blocks were lent when the process forked, whatever other threads were doing.
class LentBlocks {
 public:
  /// The block is lent from now on. `data`: the begin of a page.
  void add(uint32_t lease, const void* data, size_t bytes) noexcept;
  /// The block is no longer used. True if the lease may be returned at once; false if a forked
  /// child may still copy the block: then pass it to returnAfterForks().
  bool remove(uint32_t lease) noexcept;
  /// The number of blocks.
  uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

  /// Calls `each` with the address and the size of every block.
  template <typename Each>
  void forEach(Each&& each) const noexcept {
    for (const std::atomic<uint64_t>& entry : entries_) {
      const uint64_t place = entry.load(std::memory_order_seq_cst);
      if (place == 0) continue;
      each(reinterpret_cast<std::byte*>((place >> kPagesBits) * ipc::kPageBytes),
           (place & kMostPages) * ipc::kPageBytes);
    }
  }

 private:
  // The number of its first page and its number of pages: user space has 2^47 bytes.
  static constexpr uint32_t kPagesBits = 28;
  static constexpr uint64_t kMostPages = (uint64_t{1} << kPagesBits) - 1;

  std::atomic<uint64_t> count_{0};
  std::array<std::atomic<uint64_t>, ipc::kLeases> entries_{};
};

/// A mapping that this process shares with workers. A forked child gets a copy of it.
class CopiedInForks {
 public:
  /// `lent`: the only parts of the mapping that a child may use; null: it may use all of it. Both
  /// must outlive this object. Whole pages.
  CopiedInForks(std::byte* data, size_t bytes, const LentBlocks* lent) noexcept;
  ~CopiedInForks();
  CopiedInForks(const CopiedInForks&) = delete;
  CopiedInForks& operator=(const CopiedInForks&) = delete;

 private:
  friend class ForkHandlers;
  std::byte* const data_;
  const size_t bytes_;
  const LentBlocks* const lent_;
  const uint32_t generation_;
  CopiedInForks* next_ = nullptr;
  CopiedInForks* previous_ = nullptr;
};

/// This process's input arena, which is never destroyed; `limit`: ISOPOOL_FORK_COPY_LIMIT. Before
/// the first call, forks copy nothing.
void copyArenaInForks(ipc::PageArena& arena, uint64_t limit) noexcept;

/// Returns the block's lease when no forked child can need it any more, perhaps at once. Takes the
/// block over; see returnLentBlock().
void returnAfterForks(LentBlock* block) noexcept;

}  // namespace isopool::client
