// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace isopool::ipc {

/// Replaces shared pages by one private mapping, in which only some parts have the content of the
/// shared ones. Makes system calls only and allocates no memory of the heap, so that a forked child
/// can use it. The range must not be written meanwhile. Not thread-safe.
class PrivateImage {
 public:
  /// `begin` and `bytes`: whole pages. The range itself does not change yet.
  PrivateImage(void* begin, size_t bytes) noexcept;
  ~PrivateImage();
  PrivateImage(const PrivateImage&) = delete;
  PrivateImage& operator=(const PrivateImage&) = delete;

  /// Copies this part of the range, whole pages. False if there is no memory for it.
  bool copy(const void* part, size_t bytes) noexcept;
  /// Puts the image in the place of the range, in one step: parts that were not copied read as
  /// zero. False if the kernel refuses; then nothing has changed.
  bool putInPlace() noexcept;

 private:
  std::byte* const begin_;
  const size_t bytes_;
  std::byte* image_;  // null: no address space, or it is in its place
};

/// Makes every access to the range a segmentation fault. Whole pages. Makes one system call.
void makeInaccessible(const void* begin, size_t bytes) noexcept;

}  // namespace isopool::ipc
