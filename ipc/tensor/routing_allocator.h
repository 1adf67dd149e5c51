// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace isopool::ipc {

/// Where memory of CPU tensors comes from on a thread while a ScopedBlockSource is in force there.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  /// A block of at least `bytes`, or nullptr: the heap serves then.
  virtual void* allocateBlock(size_t bytes) noexcept = 0;
};

/// Who takes blocks back: any thread, at any time, for ever.
class BlockOwner {
 public:
  virtual ~BlockOwner() = default;
  /// True if `data` is a block of this owner.
  virtual bool ownsBlock(const void* data) const noexcept = 0;
  virtual void freeBlock(void* data) noexcept = 0;
};

/// Tensors smaller than this come from the heap in any case.
inline constexpr size_t kSmallestBlockBytes = 64;

/// Installs, once and for the life of the process, a CPU allocator in front of c10's: it asks the
/// thread's BlockSource first and gives back to `owner` what `owner` owns, so that a storage may be
/// freed or resized anywhere. `owner` must live for ever. A second call with another owner adds it.
void installRoutingAllocator(BlockOwner& owner);

/// True if the memory was allocated by c10's own allocator, because no BlockSource gave it.
bool isHeapMemory(const c10::DataPtr& data) noexcept;

/// Routes this thread's allocations of CPU tensors to `source` while it lives. Nests; a null source
/// routes to the heap.
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
