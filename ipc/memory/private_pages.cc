// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/private_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "ipc/memory/memory_object.h"

namespace isopool::ipc {

PrivatePages::~PrivatePages() {
  for (size_t i = 0; i < runCount_; ++i) ::munmap(runs_[i].address, runs_[i].bytes);
}

bool PrivatePages::privatise(void* address, size_t bytes) noexcept {
  void* run = take(bytes);
  if (run == nullptr) return privatisePages(address, bytes);
  std::memcpy(run, address, bytes);
  if (::mremap(run, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address) == MAP_FAILED) {
    ::munmap(run, bytes);
    return false;
  }
  return true;
}

void* PrivatePages::take(size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  const auto end = runs_.begin() + static_cast<std::ptrdiff_t>(runCount_);
  const auto run =
      std::find_if(runs_.begin(), end, [bytes](const Run& each) { return each.bytes == bytes; });
  if (run == end) return nullptr;
  void* const address = run->address;
  std::move(run + 1, end, run);
  --runCount_;
  heldBytes_ -= bytes;
  return address;
}

void PrivatePages::recover(void* address, size_t bytes) noexcept {
  if (bytes > mostBytes_) return;
  // The range stays mapped throughout, so that no other thread's memory can come to lie there.
  void* const moved = ::mremap(address, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
  if (moved == MAP_FAILED) return;
  std::lock_guard lock(mutex_);
  while (runCount_ == runs_.size() || heldBytes_ + bytes > mostBytes_) {
    ::munmap(runs_[0].address, runs_[0].bytes);
    heldBytes_ -= runs_[0].bytes;
    std::move(runs_.begin() + 1, runs_.begin() + static_cast<std::ptrdiff_t>(runCount_),
              runs_.begin());
    --runCount_;
  }
  runs_[runCount_++] = {moved, bytes};
  heldBytes_ += bytes;
}

size_t PrivatePages::heldBytes() const noexcept {
  std::lock_guard lock(mutex_);
  return heldBytes_;
}

}  // namespace isopool::ipc
