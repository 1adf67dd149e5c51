// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>

#include "base/mutex.h"

namespace isopool::ipc {

/// A cache of private pages for ranges that are privatised again and again with the same length. A
/// new page costs a page fault, 2 us on a virtual machine; moving a used page takes a tenth of
/// that. Keeps at most 16 runs of pages and at most `mostBytes`. Thread-safe.
class PrivatePages {
 public:
  explicit PrivatePages(size_t mostBytes) : mostBytes_(mostBytes) {}
  ~PrivatePages();
  PrivatePages(const PrivatePages&) = delete;
  PrivatePages& operator=(const PrivatePages&) = delete;

  /// As privatisePages(), with cached pages if there is a run of this length.
  bool privatise(void* address, size_t bytes) noexcept;
  /// Moves the private pages of a range, whole pages whose content is not needed any more, into the
  /// cache, or leaves them there if the run is too long or the kernel refuses. The range stays
  /// mapped with undefined content: unmap it or map something over it.
  void recover(void* address, size_t bytes) noexcept;

  /// Bytes in the cache.
  size_t heldBytes() const noexcept;

 private:
  struct Run {
    void* address = nullptr;
    size_t bytes = 0;
  };
  void* take(size_t bytes) noexcept;
  Run removeRun(size_t index) noexcept ISOPOOL_REQUIRES(mutex_);

  const size_t mostBytes_;
  mutable base::Mutex mutex_;
  std::array<Run, 16> runs_
      ISOPOOL_GUARDED_BY(mutex_){};  // the first runCount_ are in use, the oldest first
  size_t runCount_ ISOPOOL_GUARDED_BY(mutex_) = 0;
  size_t heldBytes_ ISOPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace isopool::ipc
