// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace isopool::worker {

/// The number of ranges that may be private at a time, over all channels of a worker: privatising
/// splits mappings, and the kernel limits their number per process (65530 by default).
inline constexpr size_t kMaxPrivatisedRanges = 8192;

/// Replaces whole shared pages by private ones with the same content, at the same address, and
/// counts the range. Returns false and changes nothing if the allowance or the memory is used
/// up. Any thread.
bool privatiseRange(void* address, size_t bytes) noexcept;

/// Counts one range less. The caller then maps the shared pages there again, or unmaps the range.
/// The private pages are kept for the next range of this length. Any thread.
void endPrivatisedRange(void* address, size_t bytes) noexcept;
/// Counts one range less and leaves its pages as they are, if there are no shared pages to
/// restore. Any thread.
void forgetPrivatisedRange() noexcept;

}  // namespace isopool::worker
