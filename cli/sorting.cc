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

// The highest first.
template <typename Entry, typename RankOf>
void sortByRank(std::vector<Entry>& entries, const RankOf& rankOf) {
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& one, const Entry& other) {
    return rankOf(one) > rankOf(other);
  });
}

}  // namespace

void sortByPlace(ipc::Report& report) {
  const auto placeOf = [](const ipc::ReportedWorker& worker) {
    return std::tuple(worker.group, worker.slot < 0, worker.slot, worker.epoch);
  };
  std::sort(report.workers.begin(), report.workers.end(),
            [&](const auto& one, const auto& other) { return placeOf(one) < placeOf(other); });
  std::sort(report.clients.begin(), report.clients.end(),
            [](const auto& one, const auto& other) { return one.number < other.number; });
}

uint64_t memoryOf(const ipc::ReportedClient& client) {
  return client.inputBytes + client.packageBytes + client.outputBytes + client.handleBytes;
}

void sortBy(ipc::Report& report, const std::optional<Rates>& rates, SortOrder order) {
  using Worker = ipc::ReportedWorker;
  using Client = ipc::ReportedClient;
  sortByPlace(report);
  switch (order) {
    case SortOrder::kActivity: {
      const Rates known = rates.value_or(Rates{});
      sortByRank(report.workers, [&](const Worker& worker) {
        return std::tuple(rateOf(known.ofWorkers, worker.epoch), worker.runningClient != 0,
                          worker.waitingClients, worker.completedCalls);
      });
      return sortByRank(report.clients, [&](const Client& client) {
        return std::tuple(rateOf(known.ofClients, client.number), client.runningCalls,
                          client.queuedCalls, client.completedCalls);
      });
    }
    case SortOrder::kTime:
      sortByRank(report.workers, [](const Worker& worker) { return worker.runningMilliseconds; });
      return sortByRank(report.clients, [](const Client& client) { return client.runningCalls; });
    case SortOrder::kQueue:
      sortByRank(report.workers, [](const Worker& worker) { return worker.waitingClients; });
      return sortByRank(report.clients, [](const Client& client) { return client.queuedCalls; });
    case SortOrder::kMemory:
      sortByRank(report.workers,
                 [](const Worker& worker) { return worker.privateBytes + worker.startedBytes; });
      return sortByRank(report.clients, memoryOf);
    case SortOrder::kPlace:
      return;
  }
}

}  // namespace isopool::cli
