// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/fd.h"

namespace isopool::ipc {

/// The unit of all shared memory: a block is whole pages of this size, so that one block can be
/// remapped alone.
inline constexpr size_t kPageBytes = 4096;

constexpr size_t roundUpToPages(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

/// Owns one mapping and unmaps it once. Move-only; an empty one has no data. Not thread-safe. The
/// mapping stays valid when its descriptor is closed and when other processes that have it die.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { unmap(); }

  /// Leaves the memory mapped until the process ends.
  void release() { data_ = nullptr; }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }
  bool valid() const { return data_ != nullptr; }
  bool contains(const void* address) const {
    return address >= data_ && static_cast<const std::byte*>(address) < data() + bytes_;
  }

 private:
  void unmap() noexcept;

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Makes processes that are forked from now on not inherit the mapping. In such a process its
/// addresses are free for other mappings, so the copy of the Mapping must not be destroyed there.
/// Throws SystemCallError.
Mapping excludedFromForks(Mapping mapping);

enum class Access { kReadOnly, kReadWrite };
enum class Prefault { kNo, kYes };
/// What the kernel forbids for a memory object. `kFixedSize`: it can neither shrink nor grow, so
/// that a reader can't get SIGBUS. `kSingleWriter`: additionally, no process can make a writable
/// mapping any more; the process that made one before is the only writer, which the MMU enforces.
/// `kReadOnly`: additionally to kFixedSize, no process can write it any more.
enum class Seal { kFixedSize, kSingleWriter, kReadOnly };

/// Makes shared memory without a name: the kernel frees it with its last descriptor and mapping.
/// Allocates its pages, so that later accesses can't fail, and seals it kFixedSize. `label` is
/// shown only in /proc. Throws SystemCallError (ENOMEM, EMFILE).
base::Fd createMemoryObject(const char* label, size_t bytes);

/// Allocates the pages of a range (whole pages) of a memory object that were never allocated or
/// were released, so that later accesses can't fail. Throws SystemCallError (ENOMEM, ENOSPC).
void allocatePages(int object, size_t offset, size_t bytes, const char* label);
/// Returns the pages of a range to the system, for all processes that map the object: the range
/// stays mapped, its content is zero. An access allocates a page again, which can fail: call
/// allocatePages() before the next use. Returns false if the kernel refuses; nothing has changed
/// then.
bool releasePages(int object, size_t offset, size_t bytes) noexcept;

/// The memory that the system has given for the object; 0 if it is closed.
size_t heldBytes(const base::Fd& object) noexcept;

/// Makes an empty memory object without seals: fill it by write(), then seal it. Errors as above.
base::Fd createGrowingMemoryObject(const char* label);

/// Adds seals. No seals can be added after kSingleWriter or kReadOnly. kReadOnly fails while a
/// writable mapping exists. Throws SystemCallError.
void sealMemoryObject(const base::Fd& object, Seal seal);

/// Seals the object kReadOnly if no process has a writable mapping of it. Returns false, and
/// changes nothing, if one has.
bool isWritableNoMore(const base::Fd& object) noexcept;

/// Forbids all further seals, so that no process that gets the object can keep others from making a
/// writable mapping of it. Returns false if a seal forbids that already, or if it is no memory
/// object.
bool keepWritable(const base::Fd& object) noexcept;

/// True if `object` is a memory object of exactly `bytes` bytes with at least the guarantees of
/// `seal`. Check every descriptor from another process by this before mapping it: a file without
/// seals could be made smaller later, and an access would end this process (SIGBUS).
bool memoryObjectHas(const base::Fd& object, size_t bytes, Seal seal);

/// Maps `bytes` from `offset`, shared. Prefault::kYes sets up the page tables as well, so that the
/// first accesses do not fault; for a large range that takes milliseconds. Does not need the
/// descriptor afterwards. Throws SystemCallError.
Mapping mapShared(const base::Fd& object, size_t offset, size_t bytes, Access access,
                  Prefault prefault);

/// As mapShared(), but at an address of a reservation, whose mapping there it replaces in one step.
/// The reservation owns the result.
void mapSharedAt(void* address, const base::Fd& object, size_t offset, size_t bytes, Access access,
                 Prefault prefault);

/// Maps `bytes` from `offset` copy-on-write: writes stay in this process. Throws SystemCallError.
Mapping mapPrivate(const base::Fd& object, size_t offset, size_t bytes);

/// Reserves address space without memory: an access is a segmentation fault until something is
/// mapped there. Throws SystemCallError.
Mapping reserveAddressSpace(size_t bytes);

/// Replaces the shared pages at [address, address + bytes), whole pages, by private pages with the
/// same content, in one step: pointers stay valid, and later writes of other processes are not
/// seen. A write during the call, of this or another process, may be lost. Returns false and
/// changes nothing if the kernel has no memory or no mapping left.
bool privatisePages(void* address, size_t bytes) noexcept;
/// The same, but uses the pages of `pages`, a private mapping of that length. The mapping at
/// `pages` is gone afterwards, also after a failure.
bool privatisePages(void* address, size_t bytes, void* pages) noexcept;

}  // namespace isopool::ipc
