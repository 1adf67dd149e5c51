// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/memory_object.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file_size_signal.h"
#include "base/standard_streams.h"
#include "base/system_call.h"
#include "base/without_cancellation.h"

// Some supported systems lack these in their libc headers. The values are the kernel's.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace isopool::ipc {

namespace {

int sealBits(Seal seal) {
  const int fixedSize = F_SEAL_SHRINK | F_SEAL_GROW;
  switch (seal) {
    case Seal::kFixedSize:
      return fixedSize;
    case Seal::kSingleWriter:
      return fixedSize | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
    case Seal::kReadOnly:
      return fixedSize | F_SEAL_WRITE | F_SEAL_SEAL;
  }
  return fixedSize;
}

int protectionBits(Access access) {
  return access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
}

void* mapChecked(void* address, size_t bytes, int protection, int flags, int fd, size_t offset) {
  void* data = ::mmap(address, bytes, protection, flags, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    throw base::SystemCallError("mmap", std::to_string(bytes) + " bytes", errno);
  }
  return data;
}

}  // namespace

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Mapping::unmap() noexcept {
  if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), std::exchange(bytes_, 0));
}

Mapping excludedFromForks(Mapping mapping) {
  base::checkSystemCall(::madvise(mapping.data(), mapping.bytes(), MADV_DONTFORK),
                        "madvise(MADV_DONTFORK)");
  return mapping;
}

base::Fd createGrowingMemoryObject(const char* label) {
  int fd = ::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  // Kernels before 6.3 do not support MFD_NOEXEC_SEAL.
  if (fd == -1 && errno == EINVAL) fd = ::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  return base::awayFromStandardStreams(base::Fd(base::checkSystemCall(fd, "memfd_create", label)));
}

// If a signal arrives while the kernel reserves a range, the kernel releases what it has reserved
// of this range. So after a signal the rest is reserved in pieces that take less time than passes
// between two signals.
void allocatePages(int object, size_t offset, size_t bytes, const char* label) {
  const base::NoFileSizeSignal limited;
  constexpr size_t kPiece = 64 * 1024;
  const base::WithoutCancellation complete;
  size_t allocated = 0;
  size_t piece = bytes;
  while (allocated < bytes) {
    piece = std::min(piece, bytes - allocated);
    const int result =
        ::fallocate(object, 0, static_cast<off_t>(offset + allocated), static_cast<off_t>(piece));
    if (result == 0) {
      allocated += piece;
    } else if (errno == EINTR) {
      piece = std::min(piece, kPiece);
    } else {
      base::checkSystemCall(result, "fallocate", label);
    }
  }
}

bool releasePages(int object, size_t offset, size_t bytes) noexcept {
  const base::WithoutCancellation complete;
  int result = 0;
  do {
    result = ::fallocate(object, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

size_t heldBytes(const base::Fd& object) noexcept {
  constexpr size_t kUnit = 512;  // stat(2)
  struct stat status {};
  if (::fstat(object.get(), &status) != 0) return 0;
  return static_cast<size_t>(status.st_blocks) * kUnit;
}

base::Fd createMemoryObject(const char* label, size_t bytes) {
  base::Fd object = createGrowingMemoryObject(label);
  allocatePages(object.get(), 0, bytes, label);
  sealMemoryObject(object, Seal::kFixedSize);
  return object;
}

void sealMemoryObject(const base::Fd& object, Seal seal) {
  base::checkSystemCall(::fcntl(object.get(), F_ADD_SEALS, sealBits(seal)), "fcntl(F_ADD_SEALS)",
                        object.get());
}

bool isWritableNoMore(const base::Fd& object) noexcept {
  return ::fcntl(object.get(), F_ADD_SEALS, sealBits(Seal::kReadOnly)) == 0;
}

bool keepWritable(const base::Fd& object) noexcept {
  // Fails if it was done before.
  (void)::fcntl(object.get(), F_ADD_SEALS, F_SEAL_SEAL);
  const int seals = ::fcntl(object.get(), F_GET_SEALS);
  return seals != -1 && (seals & F_SEAL_SEAL) != 0 &&
         (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0;
}

bool memoryObjectHas(const base::Fd& object, size_t bytes, Seal seal) {
  struct stat status {};
  if (::fstat(object.get(), &status) != 0) return false;
  if (static_cast<uint64_t>(status.st_size) != bytes) return false;
  const int seals = ::fcntl(object.get(), F_GET_SEALS);
  // F_SEAL_SEAL only prevents further seals; a reader does not need that guarantee.
  const int wanted = sealBits(seal) & ~F_SEAL_SEAL;
  return seals != -1 && (seals & wanted) == wanted;
}

Mapping mapShared(const base::Fd& object, size_t offset, size_t bytes, Access access,
                  Prefault prefault) {
  const int flags = MAP_SHARED | (prefault == Prefault::kYes ? MAP_POPULATE : 0);
  return Mapping(mapChecked(nullptr, bytes, protectionBits(access), flags, object.get(), offset),
                 bytes);
}

void mapSharedAt(void* address, const base::Fd& object, size_t offset, size_t bytes, Access access,
                 Prefault prefault) {
  const int flags = MAP_SHARED | MAP_FIXED | (prefault == Prefault::kYes ? MAP_POPULATE : 0);
  mapChecked(address, bytes, protectionBits(access), flags, object.get(), offset);
}

Mapping mapPrivate(const base::Fd& object, size_t offset, size_t bytes) {
  return Mapping(mapChecked(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                            object.get(), offset),
                 bytes);
}

Mapping reserveAddressSpace(size_t bytes) {
  return Mapping(
      mapChecked(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
      bytes);
}

bool privatisePages(void* address, size_t bytes) noexcept {
  // MAP_POPULATE for all pages together: a page fault for each would take longer than the copy.
  void* copy = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (copy == MAP_FAILED) return false;
  return privatisePages(address, bytes, copy);
}

bool privatisePages(void* address, size_t bytes, void* pages) noexcept {
  std::memcpy(pages, address, bytes);
  if (::mremap(pages, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address) == MAP_FAILED) {
    ::munmap(pages, bytes);
    return false;
  }
  return true;
}

}  // namespace isopool::ipc
