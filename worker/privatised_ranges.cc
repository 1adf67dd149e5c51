// SPDX-License-Identifier: BSD-3-Clause
#include "worker/privatised_ranges.h"

#include <atomic>

#include "ipc/crash_point.h"
#include "ipc/memory/memory_object.h"

namespace isopool::worker {

namespace {
std::atomic<size_t> privatisedRanges{0};
}

bool privatiseRange(void* address, size_t bytes) noexcept {
  if (privatisedRanges.fetch_add(1) >= kMaxPrivatisedRanges ||
      !ipc::privatisePages(address, bytes)) {
    privatisedRanges.fetch_sub(1);
    return false;
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kKeptBlockPrivatised);
  return true;
}

void forgetPrivatisedRange() noexcept { privatisedRanges.fetch_sub(1); }

}  // namespace isopool::worker
