// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace isopool::client {

/// The load of the worker in one slot, as far as the pool knows it when it chooses a worker. In
/// part read from words that the worker writes: a worker may state a wrong load of itself.
struct WorkerLoad {
  bool serves = false;    ///< the slot has a worker, and it is not known to be dead
  uint32_t inFlight = 0;  ///< calls of the pool on it
  /// Requests of this program that the worker has not ended: calls, steps of sessions, work that no
  /// thread waits for.
  uint32_t work = 0;
  bool held = false;         ///< a request has waited too long for the running one to end
  uint32_t othersCalls = 0;  ///< of other programs, if the worker is shared
  uint32_t users = 0;        ///< sessions, streams and calls

  /// The larger of the two: a call is counted in `work` only after it was published.
  uint32_t busyWith() const { return std::max(inFlight, work); }
  bool idle() const { return serves && busyWith() == 0 && othersCalls == 0; }
};

/// Calls that one worker may have: one that runs and, if calls are short, one behind it, so that
/// the worker finds the next one at once. Short: waiting there costs less than the gap between two
/// calls would.
inline constexpr uint32_t kCallsPerWorker = 2;
constexpr uint32_t callsPerWorker(bool callsAreShort) {
  return callsAreShort ? kCallsPerWorker : 1;
}

/// The slot, of `count`, that gets the next call: the `preferred` one if it is idle, else the least
/// busy one that has fewer than `most` calls and is not held; nothing if no slot qualifies. Of
/// equally busy ones, that with the fewest calls of other programs, then the fewest users, then the
/// first. `loadOf(slot)` returns a WorkerLoad; the preferred slot may be asked for twice.
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

/// True if a call that waits in the ring of a held worker may move to a worker with this load: that
/// worker is idle, or has only calls of the pool, which are short if a worker may have several.
inline bool mayMoveTo(const WorkerLoad& load) {
  return load.idle() || (load.othersCalls == 0 && load.work <= load.inFlight);
}

}  // namespace isopool::client
