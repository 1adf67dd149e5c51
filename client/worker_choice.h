// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace isopool::client {

/// What a pool knows of the worker in one of its slots when it chooses one for a call.
struct WorkerLoad {
  bool serves = false;
  uint32_t inFlight = 0;     ///< calls of the pool on it
  uint32_t othersCalls = 0;  ///< of other programs, if it is shared
  uint32_t users = 0;        ///< sessions and calls
};

/// Calls that one worker may have: one that runs, and one behind it so that it finds the next at
/// once, if waiting there costs less than the gap between two calls.
inline constexpr uint32_t kCallsPerWorker = 2;
constexpr uint32_t callsPerWorker(bool callsAreShort) {
  return callsAreShort ? kCallsPerWorker : 1;
}

/// The slot, of `count`, that the next call goes to: the `preferred` one if that is idle, else the
/// least busy one that has less than `most` calls; nothing if there is none. `loadOf(slot)` gives a
/// WorkerLoad.
template <typename LoadOf>
std::optional<size_t> chooseWorker(size_t count, std::optional<size_t> preferred, uint32_t most,
                                   LoadOf&& loadOf) {
  if (preferred && *preferred < count) {
    const WorkerLoad load = loadOf(*preferred);
    if (load.inFlight == 0 && load.serves && load.othersCalls == 0) return preferred;
  }
  std::optional<size_t> best;
  std::array<uint32_t, 3> bestRank{};
  for (size_t slot = 0; slot < count; ++slot) {
    const WorkerLoad load = loadOf(slot);
    if (!load.serves || load.inFlight >= most) continue;
    const std::array<uint32_t, 3> rank{load.inFlight, load.othersCalls, load.users};
    if (best && rank >= bestRank) continue;
    best = slot;
    bestRank = rank;
  }
  return best;
}

}  // namespace isopool::client
