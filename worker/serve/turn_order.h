// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace isopool::worker {

/// The state of one channel in the order of turns.
struct Turns {
  uint32_t share = 1;
  uint64_t pass = 0;        ///< grows with each turn, more slowly with a larger share
  uint64_t lastServed = 0;  ///< number of the last turn that the channel had
};

/// Decides which waiting client is served next, call by call: stride scheduling (Waldspurger and
/// Weihl, 1995) over turns. Clients that always have a call waiting get turns in proportion to
/// their shares. A client that had no call waiting for a while is served before them, but does not
/// accumulate turns. So a client with a single call waits for the running call only, and not for
/// another client's queue. For one thread.
class TurnOrder {
 public:
  /// An iterator to the entry of `channels` to serve, one for which `waits` is true; channels.end()
  /// if there is none. `turnsOf` returns a channel's Turns.
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

  /// To be called after the channel with these turns was served.
  void served(Turns& turns) noexcept {
    now_ = std::max(turns.pass, now_);
    turns.pass = now_ + kStride / std::max<uint32_t>(turns.share, 1);
    turns.lastServed = ++count_;
  }

 private:
  static constexpr uint64_t kStride = uint64_t{1} << 20;
  using Rank = std::tuple<bool, uint64_t, uint64_t>;

  // A channel that always has a call waiting is never behind now_: one that is behind has not
  // called for a while.
  Rank rankOf(const Turns& turns) const {
    return {turns.pass >= now_, std::max(turns.pass, now_), turns.lastServed};
  }

  uint64_t now_ = 0;  // the pass of the latest turn
  uint64_t count_ = 0;
};

}  // namespace isopool::worker
