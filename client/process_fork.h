// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace isopool::client {

/// Counts the forks between the first process that used isopool and this one. What was made in
/// another generation belongs to a parent process: its threads don't exist here, its locks may be
/// held by nobody, and its shared words are the parent's to write.
uint32_t forkGeneration() noexcept;

/// Throws Error if `generation` is not this process's.
void checkNotForked(uint32_t generation);

}  // namespace isopool::client
