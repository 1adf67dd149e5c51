// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "supervisor/pool/client_id.h"
#include "supervisor/processes/restart_policy.h"

namespace isopool::supervisor {

/// A death of a worker that a client's code has caused before the client had completed a call on
/// that worker.
struct ClientDeath {
  std::string model;   ///< whose code it was; empty: of no model
  std::string death;   ///< "SIGSEGV", "exit code 3", "SIGKILL (a call ran for too long)"
  uint64_t calls = 0;  ///< that the client has completed so far, on all workers
};

/// Which clients of a group get no further worker for a while, because their code has ended
/// workers: the delays of RestartPolicy, applied to a client in place of a slot, which other
/// clients call, too. A call that the client completes on any worker ends the row of its deaths.
/// Pure: the caller passes the time, which must not decrease. Not thread-safe.
class ClientHolds {
 public:
  explicit ClientHolds(const RestartLimits& limits) : limits_(limits) {}

  /// Records a death. The decision's delay, from `now` on, is for how long the client gets no
  /// further worker.
  RestartPolicy::Decision died(ClientId client, const ClientDeath& death, base::TimePoint now);
  /// True if the client gets no further worker now.
  bool isHeld(ClientId client, base::TimePoint now) const;
  /// The end of the next hold after `now`; nothing if there is none.
  std::optional<base::TimePoint> nextEnd(base::TimePoint now) const;
  /// The client has left.
  void forget(ClientId client) { records_.erase(client); }

  struct ClientQuarantine {
    uint32_t deaths = 0;             ///< early ones of the client in a row
    base::Milliseconds duration{0};  ///< from now on
    std::string text;                ///< for the client, the log and reports
  };
  /// Nothing unless the client is in quarantine: a shorter hold is not reported.
  std::optional<ClientQuarantine> quarantineOf(ClientId client, base::TimePoint now) const;
  /// Clients in quarantine.
  uint64_t quarantined(base::TimePoint now) const;

 private:
  struct Record {
    explicit Record(const RestartLimits& limits) : policy(limits) {}
    bool isHeld(base::TimePoint now) const { return until && now < *until; }

    RestartPolicy policy;
    ClientDeath last;
    std::optional<base::TimePoint> until;
    base::Milliseconds whole{0};  ///< the time that ends with it
    bool quarantined = false;     ///< `until` is the end of a quarantine
  };

  const RestartLimits limits_;
  std::map<ClientId, Record> records_;
};

}  // namespace isopool::supervisor
