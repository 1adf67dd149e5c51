// SPDX-License-Identifier: BSD-3-Clause
#include "cli/rates.h"

#include <utility>

namespace isopool::cli {

namespace {

using Numbers = std::map<uint64_t, uint64_t>;

// A new worker or client starts at 0. A worker may write a smaller count than before: the rate is
// then 0.
std::map<uint64_t, double> perSecond(const Numbers& before, const Numbers& after, double seconds) {
  std::map<uint64_t, double> rates;
  for (const auto& [key, count] : after) {
    const auto found = before.find(key);
    const uint64_t had = found != before.end() ? found->second : 0;
    rates[key] = count > had ? static_cast<double>(count - had) / seconds : 0;
  }
  return rates;
}

}  // namespace

std::optional<Rates> RateMeter::compare(const ipc::Report& report, TimePoint at) {
  Counts counts{at, 0, {}, {}};
  for (const ipc::ReportedGroup& group : report.groups) counts.total += group.completedCalls;
  for (const ipc::ReportedWorker& worker : report.workers) {
    counts.ofWorkers[worker.epoch] = worker.completedCalls;
  }
  for (const ipc::ReportedClient& client : report.clients) {
    counts.ofClients[client.number] = client.completedCalls;
  }
  const std::optional<Counts> before = std::exchange(last_, counts);
  if (!before || before->at >= at) return std::nullopt;
  const double seconds = std::chrono::duration<double>(at - before->at).count();
  // Of the groups: these count calls of workers that have ended since, too.
  const uint64_t done = counts.total > before->total ? counts.total - before->total : 0;
  return Rates{static_cast<double>(done) / seconds,
               perSecond(before->ofWorkers, counts.ofWorkers, seconds),
               perSecond(before->ofClients, counts.ofClients, seconds)};
}

}  // namespace isopool::cli
