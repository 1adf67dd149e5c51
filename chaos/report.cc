// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/report.h"

#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace chaos {

namespace {

using isopool::base::Json;

const char* nameOf(RecordFlag act) {
  return act == kConstructor ? "constructors" : act == kLoad ? "loads" : "closes";
}

}  // namespace

void writeJson(std::ostream& out, const CampaignSettings& settings, const CampaignResult& result,
               const Findings& findings) {
  Json json{{"seed", settings.seed},
            {"kills", result.kills},
            {"real_kills", result.realKills},
            {"calls", result.calls},
            {"ended_early", result.endedEarly}};
  for (size_t i = 0; i < static_cast<size_t>(Fault::kFaults); ++i) {
    json[nameOf(static_cast<Fault>(i))] = findings.count(static_cast<Fault>(i));
  }
  json["deaths_by_own_call"] = result.selfInflictedDeaths;
  json["latest_outcome_ms"] = result.latest.count();
  json["episodes"] = result.episodes;
  json["seconds"] = std::round(result.seconds * 10) / 10;
  json["system_memory_compared"] = result.systemMemoryCompared;
  for (size_t i = 0; i < result.attacks.size(); ++i) {
    json["attacks"][nameOf(static_cast<Family>(i))] = result.attacks[i];
  }
  for (size_t i = 1; i < result.outcomes.size(); ++i) {
    json["outcomes"][nameOf(static_cast<Outcome>(i))] = result.outcomes[i];
  }
  for (const auto& [act, counts] : result.managers) {
    json["managers"][nameOf(act)] = {{"ended", counts.ended},
                                     {"interrupted", counts.interrupted},
                                     {"interrupted_only", counts.interruptedOnly}};
  }
  out << isopool::base::jsonText(json) << '\n';
}

void writeText(std::ostream& out, const CampaignSettings& settings, const CampaignResult& result,
               const Findings& findings) {
  out << "seed " << settings.seed << ": " << result.kills << " kills (" << result.realKills
      << " of them with real workers) and " << result.selfInflictedDeaths
      << " deaths by user code in " << std::fixed << std::setprecision(0) << result.seconds
      << " s, " << result.episodes << " episodes, " << result.calls << " calls\n  attacks ";
  for (size_t i = 0; i < result.attacks.size(); ++i) {
    out << ' ' << nameOf(static_cast<Family>(i)) << ' ' << result.attacks[i];
  }
  out << "\n  outcomes";
  for (size_t i = 1; i < result.outcomes.size(); ++i) {
    out << (i == 1 ? " " : ", ") << nameOf(static_cast<Outcome>(i)) << ' ' << result.outcomes[i];
  }
  out << "\n  managers";
  for (const auto& [act, counts] : result.managers) {
    out << (act == kConstructor ? " " : ", ") << nameOf(act) << ' ' << counts.ended << " ("
        << counts.interrupted << " interrupted, " << counts.interruptedOnly << " by nothing else)";
  }
  out << "\n  found   ";
  for (size_t i = 0; i < static_cast<size_t>(Fault::kFaults); ++i) {
    out << ' ' << nameOf(static_cast<Fault>(i)) << ' ' << findings.count(static_cast<Fault>(i));
  }
  out << '\n';
  if (result.endedEarly) out << "  a signal ended the attacks early\n";
  if (!result.systemMemoryCompared) {
    out << "  the system's shared memory was not compared: other isopool processes run here\n";
  }
  for (const std::string& line : findings.lines()) out << "  " << line << '\n';
}

}  // namespace chaos
