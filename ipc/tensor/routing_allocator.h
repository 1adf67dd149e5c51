// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace isopool::ipc {

/// Allocates the memory of CPU tensors on a thread while a ScopedBlockSource exists on that thread.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  /// A block of at least `bytes` with undefined content, aligned for any element type, or nullptr:
  /// then the heap is used. Called for at least kSmallestBlockBytes.
  virtual void* allocateBlock(size_t bytes) noexcept = 0;
};

/// Frees the blocks of a BlockSource. Any thread may call it at any time until the process ends.
class BlockOwner {
 public:
  virtual ~BlockOwner() = default;
  /// True if `data` is a block of this owner. Called for every tensor memory that is freed, of any
  /// origin, so it must be fast.
  virtual bool ownsBlock(const void* data) const noexcept = 0;
  /// Called once per block, on any thread, perhaps long after its source was removed.
  virtual void freeBlock(void* data) noexcept = 0;
};

/// Smaller tensors are always allocated on the heap.
inline constexpr size_t kSmallestBlockBytes = 64;

/// Installs a CPU allocator in front of c10's until the process ends. It allocates from the
/// thread's BlockSource first, and frees a block of `owner` by `owner`, so that any thread may free
/// or resize a storage. `owner` must never be destroyed. A further call with another owner adds
/// that owner. Any thread may call it.
void installRoutingAllocator(BlockOwner& owner);

/// True if c10's own allocator allocated the memory, because no BlockSource did.
bool isHeapMemory(const c10::DataPtr& data) noexcept;

/// A block of the calling thread's BlockSource, for the memory of another library than torch; null
/// if the thread has none, if it has no room, or if `bytes` are too few.
void* allocateRouted(size_t bytes) noexcept;

/// Routes the calling thread's allocations of CPU tensors to `source` while this object exists, or
/// to the heap if `source` is null. May be nested. Destroy it on the same thread, in reverse order.
/// No effect before installRoutingAllocator(). Other threads, such as torch's, are not affected.
class ScopedBlockSource {
 public:
  explicit ScopedBlockSource(BlockSource* source);
  ~ScopedBlockSource();
  ScopedBlockSource(const ScopedBlockSource&) = delete;
  ScopedBlockSource& operator=(const ScopedBlockSource&) = delete;

 private:
  BlockSource* previous_;
};

}  // namespace isopool::ipc
