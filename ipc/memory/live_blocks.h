// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace isopool::ipc {

/// A mapping of shared memory, and the parts of it that are in use. Whole pages.
struct LiveBlocks {
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::vector<std::span<const std::byte>> blocks;

  size_t liveBytes() const noexcept {
    size_t sum = 0;
    for (const auto& block : blocks) sum += block.size();
    return sum;
  }
};

}  // namespace isopool::ipc
