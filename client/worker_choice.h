// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace isopool::client {

/// What a pool knows of the worker in one of its slots when it chooses one for a call.
struct WorkerLoad {
  bool serves = false;
  uint32_t inFlight = 0;  ///< calls of the pool on it
  /// Requests of this program that it has not ended: calls, steps of sessions, work that no thread
  /// waits for.
  uint32_t work = 0;
  bool held = false;         ///< a request has waited in vain for the one to end that it runs now
  uint32_t othersCalls = 0;  ///< of other programs, if it is shared
  uint32_t users = 0;        ///< sessions and calls

  /// A call can't be counted in `work` before it is published.
  uint32_t busyWith() const { return std::max(inFlight, work); }
  bool idle() const { return serves && busyWith() == 0 && othersCalls == 0; }
};

/// Calls that one worker may have: one that runs, and one behind it so that it finds the next at
/// once, if waiting there costs less than the gap between two calls.
inline constexpr uint32_t kCallsPerWorker = 2;
constexpr uint32_t callsPerWorker(bool callsAreShort) {
  return callsAreShort ? kCallsPerWorker : 1;
}

/// The slot, of `count`, that the next call goes to: the `preferred` one if that is idle, else the
/// least busy one that has less than `most` calls and is not held; nothing if there is none.
/// `loadOf(slot)` gives a WorkerLoad.
template <typename LoadOf>
std::optional<size_t> chooseWorker(size_t count, std::optional<size_t> preferred, uint32_t most,
                                   LoadOf&& loadOf) {
  if (preferred && *preferred < count && loadOf(*preferred).idle()) return preferred;
  std::optional<size_t> best;
  std::array<uint32_t, 3> bestRank{};
  for (size_t slot = 0; slot < count; ++slot) {
    const WorkerLoad load = loadOf(slot);
    if (!load.serves || load.held || load.inFlight >= most) continue;
    const std::array<uint32_t, 3> rank{load.busyWith(), load.othersCalls, load.users};
    if (best && rank >= bestRank) continue;
    best = slot;
    bestRank = rank;
  }
  return best;
}

/// True if a call that waits in the ring of a held worker may move to one with this load: that is
/// idle, or runs calls of the pool only, which are short where a worker may have several.
inline bool mayMoveTo(const WorkerLoad& load) {
  return load.idle() || (load.othersCalls == 0 && load.work <= load.inFlight);
}

}  // namespace isopool::client
