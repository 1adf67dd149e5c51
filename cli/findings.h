// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ipc/control/operator_messages.h"

/// Conclusions from a report: sums, relations between its entries, and problems. Pure functions.
namespace isopool::cli {

/// Sums over all workers, clients and models of a report.
struct Totals {
  uint64_t servingWorkers = 0;
  uint64_t spareWorkers = 0;
  uint64_t otherWorkers = 0;  ///< starting, retiring, dying
  uint64_t lentBlocks = 0;
  uint64_t lentBytes = 0;
  uint64_t zombieBytes = 0;
  uint64_t queuedCalls = 0;
  uint64_t runningCalls = 0;
  uint64_t completedCalls = 0;  ///< since the supervisor's start
  uint64_t modelBytes = 0;
};

Totals totalsOf(const ipc::Report& report);

/// The client of this number. Null if it is no longer connected. The result points into `report`,
/// here and below.
const ipc::ReportedClient* findClient(const ipc::Report& report, uint64_t number);
/// The entry of the worker's slot. Null if no worker of the slot has died.
const ipc::ReportedSlot* slotOf(const ipc::Report& report, const ipc::ReportedWorker& worker);
/// The slot's present worker. Null if the slot has none; a dying worker does not count.
const ipc::ReportedWorker* workerOf(const ipc::Report& report, const ipc::ReportedSlot& slot);

/// How many of the workers that serve this class of clients have loaded the model of this name.
uint64_t workersThatLoaded(const ipc::Report& report, const std::string& model,
                           const std::string& clientClass);
/// A time in microseconds that `percent` per cent of the answered calls did not exceed: one of
/// ipc::kCallTimeBounds. Nothing if that was longer than all bounds, or no call was answered.
std::optional<uint64_t> percentileOf(const ipc::ModelCalls& calls, unsigned percent);

/// A conclusion that an operator may want to act on.
struct Finding {
  enum class Severity {
    kNotice,  ///< worth knowing, but calls are served as they should be
    kProblem  ///< calls fail or wait, or will soon
  };

  Severity severity;
  std::string text;  ///< one line, safe for a terminal
};

std::vector<Finding> findings(const ipc::Report& report);
/// True if one of them is a problem.
bool hasProblem(const std::vector<Finding>& findings);

/// Why calls can't be served, on one line, safe for a terminal; nothing if they can: the supervisor
/// serves, and each group of workers has one that serves.
std::optional<std::string> whyNotReady(const ipc::Report& report);

}  // namespace isopool::cli
