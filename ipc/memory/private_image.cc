// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/private_image.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

// Some supported systems lack it in their libc headers. The value is the kernel's.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace isopool::ipc {

PrivateImage::PrivateImage(void* begin, size_t bytes) noexcept
    : begin_(static_cast<std::byte*>(begin)), bytes_(bytes) {
  void* const image = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  image_ = image == MAP_FAILED ? nullptr : static_cast<std::byte*>(image);
}

PrivateImage::~PrivateImage() {
  if (image_ != nullptr) ::munmap(image_, bytes_);
}

bool PrivateImage::copy(const void* part, size_t bytes) noexcept {
  if (image_ == nullptr) return false;
  std::byte* const target = image_ + (static_cast<const std::byte*>(part) - begin_);
  // All pages together: a page fault for each would take longer than the copy. Kernels before 5.14
  // refuse it as invalid.
  if (::madvise(target, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) return false;
  std::memcpy(target, part, bytes);
  return true;
}

bool PrivateImage::putInPlace() noexcept {
  if (image_ == nullptr) return false;
  if (::mremap(image_, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, begin_) == MAP_FAILED) {
    return false;
  }
  image_ = nullptr;
  return true;
}

void makeInaccessible(const void* begin, size_t bytes) noexcept {
  static_cast<void>(::mmap(const_cast<void*>(begin), bytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
}

}  // namespace isopool::ipc
