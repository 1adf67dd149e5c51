// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

namespace isopool::ipc {

/// Private pages that were used before, for ranges that are privatised again and again with the
/// same length: a new page costs a page fault, 2 us of a virtual machine, a used one is moved in a
/// tenth of that. Holds a few runs and no more than `mostBytes`. Any thread.
class PrivatePages {
 public:
  explicit PrivatePages(size_t mostBytes) : mostBytes_(mostBytes) {}
  ~PrivatePages();
  PrivatePages(const PrivatePages&) = delete;
  PrivatePages& operator=(const PrivatePages&) = delete;

  /// As privatisePages().
  bool privatise(void* address, size_t bytes) noexcept;
  /// Takes the private pages of a range, whole pages that nobody needs any more, for the next one.
  /// The range stays mapped, its content is undefined: unmap it or map something over it.
  void recover(void* address, size_t bytes) noexcept;

  size_t heldBytes() const noexcept;

 private:
  struct Run {
    void* address = nullptr;
    size_t bytes = 0;
  };
  void* take(size_t bytes) noexcept;
  Run removeRun(size_t index) noexcept;

  const size_t mostBytes_;
  mutable std::mutex mutex_;
  std::array<Run, 16> runs_{};  // the first runCount_, oldest first
  size_t runCount_ = 0;
  size_t heldBytes_ = 0;
};

}  // namespace isopool::ipc
