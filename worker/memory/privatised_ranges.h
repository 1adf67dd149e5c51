// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace isopool::worker {

/// Privatising splits mappings, and the kernel allows a process only so many (65530 by default), so
/// all channels of a worker share one allowance.
inline constexpr size_t kMaxPrivatisedRanges = 8192;

/// Replaces shared pages by private ones with the same content (pointers stay) and counts the
/// range. False, with nothing changed, if the allowance or the memory is used up. Any thread.
bool privatiseRange(void* address, size_t bytes) noexcept;

/// One range less: the caller maps its shared pages over it again, or unmaps it. Its private pages
/// are used again for the next range of that length. Any thread.
void endPrivatisedRange(void* address, size_t bytes) noexcept;
/// One range less, which stays as it is: there are no shared pages that could come back.
void forgetPrivatisedRange() noexcept;

}  // namespace isopool::worker
