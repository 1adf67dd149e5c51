// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/fd.h"

namespace isopool::ipc {

/// Pages of this size are the unit of everything that is shared: a block is whole pages, so that it
/// can be remapped alone.
inline constexpr size_t kPageBytes = 4096;

constexpr size_t roundUpToPages(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

/// Owns one mapping and unmaps it once. Move-only; empty has no data.
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

  /// Leaves the memory mapped for ever.
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

/// The same mapping, which processes that are forked from now on do not inherit: there its
/// addresses are free for others, so no Mapping of it may end in one. Throws SystemCallError.
Mapping excludedFromForks(Mapping mapping);

enum class Access { kReadOnly, kReadWrite };
enum class Prefault { kNo, kYes };
/// What a memory object may still become. `kFixedSize`: it can neither shrink nor grow, so that no
/// reader meets SIGBUS. `kSingleWriter`: besides, nobody can map it writable any more; who did so
/// before is the only writer, by the MMU. `kReadOnly`: nobody writes it any more.
enum class Seal { kFixedSize, kSingleWriter, kReadOnly };

/// Makes shared memory without a name: it is gone with its last descriptor and mapping. The pages
/// are allocated now, so that a later touch can't fail. Sealed kFixedSize. `label` shows in /proc
/// only. Throws SystemCallError (ENOMEM, EMFILE).
base::Fd createMemoryObject(const char* label, size_t bytes);

/// The same without seals and pages, for one that is filled by write() and sealed afterwards.
base::Fd createGrowingMemoryObject(const char* label);

/// Adds seals. kSingleWriter and kReadOnly are final; kReadOnly needs that no writable mapping is
/// left. Throws SystemCallError.
void sealMemoryObject(const base::Fd& object, Seal seal);

/// True if `object` is a memory object of exactly `bytes` bytes with at least the guarantees of
/// `seal`. To be asked about every descriptor that another process sent, before mapping it.
bool memoryObjectHas(const base::Fd& object, size_t bytes, Seal seal);

/// Maps `bytes` from `offset`, shared. Prefault::kYes sets up the page tables now. Throws
/// SystemCallError.
Mapping mapShared(const base::Fd& object, size_t offset, size_t bytes, Access access,
                  Prefault prefault);

/// The same, at an address of a reservation (the former mapping there is replaced). The result is
/// owned by the reservation.
void mapSharedAt(void* address, const base::Fd& object, size_t offset, size_t bytes, Access access,
                 Prefault prefault);

/// Maps `bytes` from `offset` copy-on-write: writes stay in this process. Throws SystemCallError.
Mapping mapPrivate(const base::Fd& object, size_t offset, size_t bytes);

/// Reserves address space without memory. Throws SystemCallError.
Mapping reserveAddressSpace(size_t bytes);

/// Replaces the shared pages at [address, address + bytes) by private ones with the same content,
/// in one step: pointers stay, later writes by others are not seen. Returns false (and changes
/// nothing) if the kernel has no memory or no mapping left.
bool privatisePages(void* address, size_t bytes) noexcept;
/// The same with `pages`, a private mapping of that length, which is gone afterwards in any case.
bool privatisePages(void* address, size_t bytes, void* pages) noexcept;

}  // namespace isopool::ipc
