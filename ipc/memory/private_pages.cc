// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/private_pages.h"

#include <sys/mman.h>

#include <algorithm>

#include "ipc/memory/memory_object.h"

namespace isopool::ipc {

PrivatePages::~PrivatePages() {
  for (size_t i = 0; i < runCount_; ++i) ::munmap(runs_[i].address, runs_[i].bytes);
}

bool PrivatePages::privatise(void* address, size_t bytes) noexcept {
  void* const run = take(bytes);
  return run != nullptr ? privatisePages(address, bytes, run) : privatisePages(address, bytes);
}

void* PrivatePages::take(size_t bytes) noexcept {
  base::MutexLock lock(mutex_);
  for (size_t i = 0; i < runCount_; ++i) {
    if (runs_[i].bytes == bytes) return removeRun(i).address;
  }
  return nullptr;
}

void PrivatePages::recover(void* address, size_t bytes) noexcept {
  if (bytes > mostBytes_) return;
  // MREMAP_DONTUNMAP keeps the range mapped, so that no other thread can map memory there.
  void* const moved = ::mremap(address, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
  if (moved == MAP_FAILED) return;
  base::MutexLock lock(mutex_);
  while (runCount_ == runs_.size() || heldBytes_ + bytes > mostBytes_) {
    const Run oldest = removeRun(0);
    ::munmap(oldest.address, oldest.bytes);
  }
  runs_[runCount_++] = {moved, bytes};
  heldBytes_ += bytes;
}

PrivatePages::Run PrivatePages::removeRun(size_t index) noexcept {
  const auto run = runs_.begin() + static_cast<std::ptrdiff_t>(index);
  const Run removed = *run;
  std::move(run + 1, runs_.begin() + static_cast<std::ptrdiff_t>(runCount_), run);
  --runCount_;
  heldBytes_ -= removed.bytes;
  return removed;
}

size_t PrivatePages::heldBytes() const noexcept {
  base::MutexLock lock(mutex_);
  return heldBytes_;
}

}  // namespace isopool::ipc
