// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "supervisor/pool/client_id.h"
#include "supervisor/processes/restart_policy.h"

namespace isopool::supervisor {

/// Which slots a client of a group may use, after deaths of workers that any of several clients may
/// have caused: a thread that one of them left can end the worker while it runs another one's call.
///
/// After kDeaths such deaths in RestartLimits::window the clients whose code had run in the last of
/// these workers are *suspects*, and each slot is for a part of them. A further death leaves those
/// suspects whose code had run there. A single one is *apart*: slot 0 is for it, the other slots
/// are for all other clients. Without such a death for RestartLimits::quarantine all clients may
/// use all slots again; a client that was apart before is apart again after one death.
///
/// Pure: the caller passes the time, which must not decrease. Not thread-safe.
class Separation {
 public:
  static constexpr size_t kDeaths = 3;

  explicit Separation(const RestartLimits& limits) : limits_(limits) {}

  /// Records a death that any of `ran` may have caused: the clients whose code had run in the
  /// worker, without those that have left. `slots`: how many the group has. Returns true if
  /// slotsOf() has changed.
  bool died(const std::set<ClientId>& ran, size_t slots, base::TimePoint now);
  /// Ends what is over. Returns true if slotsOf() has changed.
  bool tick(base::TimePoint now);
  /// When tick() shall be called next; nothing while all clients may use all slots.
  std::optional<base::TimePoint> nextTick() const;
  /// The client has left. Returns true if slotsOf() has changed.
  bool forget(ClientId client);

  /// True if some clients may not use some slots.
  bool active() const { return !suspects_.empty() || !apart_.empty(); }
  /// True if the client is a suspect or apart.
  bool concerns(ClientId client) const { return isApart(client) || suspects_.count(client) != 0; }
  bool isApart(ClientId client) const { return apart_.count(client) != 0; }
  /// Those of the slots 0 to `slots` - 1 that the client may use; in order, never empty unless
  /// `slots` is 0.
  std::vector<uint32_t> slotsOf(ClientId client, size_t slots) const;

 private:
  bool setApart(ClientId client, base::TimePoint now);

  const RestartLimits limits_;
  std::deque<base::TimePoint> deaths_;  ///< while there are no suspects
  std::set<ClientId> suspects_;         ///< none or several
  base::TimePoint suspectsUntil_{};
  std::map<ClientId, base::TimePoint> apart_;  ///< until when
  std::set<ClientId> formerlyApart_;
};

}  // namespace isopool::supervisor
