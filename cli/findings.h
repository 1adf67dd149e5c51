// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ipc/control/messages.h"

/// What a report means, as far as it does not say so itself.
namespace isopool::cli {

struct Totals {
  uint64_t servingWorkers = 0;
  uint64_t spareWorkers = 0;
  uint64_t otherWorkers = 0;  ///< starting, retiring, dying
  uint64_t lentBlocks = 0;
  uint64_t lentBytes = 0;
  uint64_t zombieBytes = 0;
  uint64_t queuedCalls = 0;
  uint64_t runningCalls = 0;
  uint64_t completedCalls = 0;  ///< of the workers that there are
  uint64_t modelBytes = 0;
};

Totals totalsOf(const ipc::Report& report);

/// Null if it is not connected any more.
const ipc::ReportedClient* findClient(const ipc::Report& report, uint64_t number);
/// Null if none of the slot's workers died.
const ipc::ReportedSlot* slotOf(const ipc::Report& report, const ipc::ReportedWorker& worker);
/// Null if the slot has none.
const ipc::ReportedWorker* workerOf(const ipc::Report& report, const ipc::ReportedSlot& slot);

/// What an operator may want to do something about, a line each, fit for a terminal.
std::vector<std::string> findings(const ipc::Report& report);

}  // namespace isopool::cli
