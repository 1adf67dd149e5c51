// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/client_holds.h"

#include <algorithm>

namespace isopool::supervisor {

RestartPolicy::Decision ClientHolds::died(ClientId client, const ClientDeath& death,
                                          base::TimePoint now) {
  Record& record = records_.try_emplace(client, limits_).first->second;
  if (death.calls > record.last.calls) record.policy.died(ExitKind::kAfterCall, now);
  record.last = death;
  const RestartPolicy::Decision decision = record.policy.died(ExitKind::kBeforeFirstCall, now);
  // A worker that it had before may die in its quarantine: the longer hold remains.
  const base::TimePoint until = now + decision.delay;
  if (decision.delay.count() == 0 || (record.until && *record.until >= until)) return decision;
  record.until = until;
  record.whole = decision.delay;
  record.quarantined = decision.quarantined;
  return decision;
}

bool ClientHolds::isHeld(ClientId client, base::TimePoint now) const {
  const auto found = records_.find(client);
  return found != records_.end() && found->second.isHeld(now);
}

std::optional<base::TimePoint> ClientHolds::nextEnd(base::TimePoint now) const {
  std::optional<base::TimePoint> next;
  for (const auto& [client, record] : records_) {
    if (record.isHeld(now) && (!next || *record.until < *next)) next = record.until;
  }
  return next;
}

std::optional<ClientHolds::ClientQuarantine> ClientHolds::quarantineOf(ClientId client,
                                                                       base::TimePoint now) const {
  const auto found = records_.find(client);
  if (found == records_.end() || !found->second.isHeld(now) || !found->second.quarantined) {
    return std::nullopt;
  }
  const Record& record = found->second;
  ClientQuarantine quarantine;
  quarantine.deaths = record.policy.earlyExitsInARow();
  quarantine.duration = std::chrono::duration_cast<base::Milliseconds>(*record.until - now);
  const std::string whose =
      record.last.model.empty() ? "its code" : "its model '" + record.last.model + "'";
  // Programs repeat it as long as the quarantine lasts: not the time that is left.
  quarantine.text = "gets no further worker for " + std::to_string(record.whole.count()) +
                    " ms from the last death on: " + whose + " ended " +
                    std::to_string(quarantine.deaths) +
                    " workers in a row before it had completed a call there, the last by " +
                    record.last.death + " (ISOPOOL_RESTART_LIMIT, ISOPOOL_QUARANTINE)";
  return quarantine;
}

uint64_t ClientHolds::quarantined(base::TimePoint now) const {
  return static_cast<uint64_t>(std::count_if(
      records_.begin(), records_.end(),
      [&](const auto& entry) { return entry.second.quarantined && entry.second.isHeld(now); }));
}

}  // namespace isopool::supervisor
