// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace isopool::worker {

/// A channel's place in the order of turns.
struct Turns {
  uint32_t share = 1;
  uint64_t pass = 0;        ///< grows with each turn, the slower the larger the share
  uint64_t lastServed = 0;  ///< which turn of the worker it had last
};

/// Decides which waiting client is served next, call by call: stride scheduling (Waldspurger and
/// Weihl, 1995) over turns. Clients that always wait get turns in proportion to their shares; one that
/// waited for nothing in a while goes before all that did, but saves no turns up. So a client with a
/// single call waits for the running one, and for nobody's queue.
class TurnOrder {
 public:
  /// The entry of `channels` to serve: one for which `waits` is true, or none. `turnsOf` gives a
  /// channel's Turns.
  template <typename Channels, typename Waits, typename TurnsOf>
  auto next(Channels& channels, Waits&& waits, TurnsOf&& turnsOf) const {
    auto best = channels.end();
    uint64_t bestPass = std::numeric_limits<uint64_t>::max();
    for (auto each = channels.begin(); each != channels.end(); ++each) {
      if (!waits(*each)) continue;
      const Turns& turns = turnsOf(*each);
      const uint64_t pass = std::max(turns.pass, now_);
      if (pass < bestPass ||
          (pass == bestPass && turns.lastServed < turnsOf(*best).lastServed)) {
        best = each;
        bestPass = pass;
      }
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

  uint64_t now_ = 0;  // the pass of the turn that was given last
  uint64_t count_ = 0;
};

}  // namespace isopool::worker
