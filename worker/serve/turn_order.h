// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace isopool::worker {

/// A channel's place in the order of turns.
struct Turns {
  uint32_t share = 1;
  uint64_t pass = 0;        ///< grows with each turn, the slower the larger the share
  uint64_t lastServed = 0;  ///< which turn of the worker it had last
};

/// Decides which waiting client is served next, call by call: stride scheduling (Waldspurger and
/// Weihl, 1995) over turns. Clients that always wait get turns in proportion to their shares; one
/// that waited for nothing in a while goes before all that did, but saves no turns up. So a client
/// with a single call waits for the running one, and for nobody's queue.
class TurnOrder {
 public:
  /// The entry of `channels` to serve: one for which `waits` is true, or none. `turnsOf` gives a
  /// channel's Turns.
  template <typename Channels, typename Waits, typename TurnsOf>
  auto next(Channels& channels, Waits&& waits, TurnsOf&& turnsOf) const {
    auto best = channels.end();
    Rank bestRank;
    for (auto each = channels.begin(); each != channels.end(); ++each) {
      if (!waits(*each)) continue;
      const Rank rank = rankOf(turnsOf(*each));
      if (best != channels.end() && !(rank < bestRank)) continue;
      best = each;
      bestRank = rank;
    }
    return best;
  }

  /// The channel with these turns was served.
  void served(Turns& turns) noexcept {
    now_ = std::max(turns.pass, now_);
    turns.pass = now_ + kStride / std::max<uint32_t>(turns.share, 1);
    turns.lastServed = ++count_;
  }

 private:
  static constexpr uint64_t kStride = uint64_t{1} << 20;
  using Rank = std::tuple<bool, uint64_t, uint64_t>;

  // Whoever always waits is never behind the present: one that is has not called for a while.
  Rank rankOf(const Turns& turns) const {
    return {turns.pass >= now_, std::max(turns.pass, now_), turns.lastServed};
  }

  uint64_t now_ = 0;  // the pass of the turn that was given last
  uint64_t count_ = 0;
};

}  // namespace isopool::worker
