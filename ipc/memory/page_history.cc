// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/memory/page_history.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/standard_streams.h"
#include "base/without_cancellation.h"
#include "ipc/memory/memory_object.h"

namespace isopool::ipc {

namespace {

// Documentation/admin-guide/mm/pagemap.rst
constexpr uint64_t kPresent = uint64_t{1} << 63;
constexpr uint64_t kSwapped = uint64_t{1} << 62;
constexpr uint64_t kFilePage = uint64_t{1} << 61;

}  // namespace

PageHistory::PageHistory()
    : pagemap_(base::awayFromStandardStreams(
          base::Fd(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)))) {}

bool PageHistory::written(const void* data, size_t bytes) const {
  const base::WithoutCancellation complete;
  if (!pagemap_.valid()) return true;
  const auto begin = reinterpret_cast<uint64_t>(data) / kPageBytes;
  const auto end = (reinterpret_cast<uint64_t>(data) + bytes + kPageBytes - 1) / kPageBytes;
  std::array<uint64_t, 512> entries;
  for (uint64_t page = begin; page < end;) {
    const size_t count = std::min<uint64_t>(entries.size(), end - page);
    const auto wanted = static_cast<ssize_t>(count * sizeof(uint64_t));
    if (::pread(pagemap_.get(), entries.data(), static_cast<size_t>(wanted),
                static_cast<off_t>(page * sizeof(uint64_t))) != wanted) {
      return true;
    }
    for (size_t i = 0; i < count; ++i) {
      // A page of the file, or a missing one, is clean. A private page was written, also if it is
      // swapped out.
      const bool own = (entries[i] & kPresent) != 0 && (entries[i] & kFilePage) == 0;
      if (own || (entries[i] & kSwapped) != 0) return true;
    }
    page += count;
  }
  return false;
}

}  // namespace isopool::ipc
