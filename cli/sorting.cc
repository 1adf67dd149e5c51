// SPDX-License-Identifier: BSD-3-Clause
#include "cli/sorting.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace isopool::cli {

namespace {

double rateOf(const std::map<uint64_t, double>& rates, uint64_t key) {
  const auto found = rates.find(key);
  return found != rates.end() ? found->second : 0;
}

}  // namespace

void sortByPlace(ipc::Report& report) {
  const auto placeOf = [](const ipc::ReportedWorker& worker) {
    return std::tuple(worker.group, worker.slot < 0, worker.slot, worker.epoch);
  };
  std::sort(report.workers.begin(), report.workers.end(),
            [&](const auto& one, const auto& other) { return placeOf(one) < placeOf(other); });
}

void sortByActivity(ipc::Report& report, const std::optional<Rates>& rates) {
  const Rates known = rates.value_or(Rates{});
  const auto rankOfWorker = [&](const ipc::ReportedWorker& worker) {
    return std::tuple(rateOf(known.ofWorkers, worker.epoch), worker.runningClient != 0,
                      worker.waitingClients, worker.completedCalls);
  };
  const auto rankOfClient = [&](const ipc::ReportedClient& client) {
    return std::tuple(rateOf(known.ofClients, client.number), client.runningCalls,
                      client.queuedCalls, client.completedCalls);
  };
  std::stable_sort(
      report.workers.begin(), report.workers.end(),
      [&](const auto& one, const auto& other) { return rankOfWorker(one) > rankOfWorker(other); });
  std::stable_sort(
      report.clients.begin(), report.clients.end(),
      [&](const auto& one, const auto& other) { return rankOfClient(one) > rankOfClient(other); });
}

}  // namespace isopool::cli
