// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

namespace isopool::batch {

/// So many chunks for each worker, so that all workers end at about the same time.
inline constexpr uint64_t kChunksPerWorker = 16;
inline constexpr uint64_t kMostItemsPerChunk = 5000;
/// Machines of different sizes do the shards of a job, and all must cut it into the same chunks.
inline constexpr uint64_t kAssumedWorkersPerShard = 8;

/// Items of one chunk if the user names no number: a multiple of the items of one call.
inline uint32_t chunkItemsFor(uint64_t items, uint64_t workers, uint32_t call) {
  const uint64_t fair = items / (std::max<uint64_t>(workers, 1) * kChunksPerWorker);
  const uint64_t chunk = std::clamp<uint64_t>(fair, 1, kMostItemsPerChunk);
  return static_cast<uint32_t>((chunk + call - 1) / call * call);
}

}  // namespace isopool::batch
