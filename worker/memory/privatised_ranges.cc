// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/privatised_ranges.h"

#include <atomic>

#include "ipc/crash_point.h"
#include "ipc/memory/private_pages.h"

namespace isopool::worker {

namespace {

std::atomic<size_t> privatisedRanges{0};

// Models seldom keep more than this from one call to the next.
constexpr size_t kMostUsedPages = size_t{32} << 20;

// Never destroyed: storages die on any thread, also while the process exits.
ipc::PrivatePages& usedPages() {
  static auto* pages = new ipc::PrivatePages(kMostUsedPages);
  return *pages;
}

}  // namespace

bool privatiseRange(void* address, size_t bytes) noexcept {
  if (privatisedRanges.fetch_add(1) >= kMaxPrivatisedRanges ||
      !usedPages().privatise(address, bytes)) {
    privatisedRanges.fetch_sub(1);
    return false;
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kKeptBlockPrivatised);
  return true;
}

void endPrivatisedRange(void* address, size_t bytes) noexcept {
  usedPages().recover(address, bytes);
  forgetPrivatisedRange();
}

void forgetPrivatisedRange() noexcept { privatisedRanges.fetch_sub(1); }

}  // namespace isopool::worker
