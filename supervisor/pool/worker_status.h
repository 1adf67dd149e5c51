// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"

namespace isopool::supervisor {

/// What a worker has written into its status page. Untrusted: any value is possible.
struct WorkerStatus {
  uint64_t runningClient = 0;  ///< 0: no call runs
  int64_t runningSince = 0;    ///< a time of the loop's clock, in ns
  uint64_t lastClient = 0;     ///< whose code ran last; 0: none
  uint32_t waitingClients = 0;
  uint64_t lentBlocks = 0;
  uint64_t lentBytes = 0;
  uint64_t zombieBytes = 0;
  std::string model;                ///< of the running or the last call; empty: of no model
  std::vector<std::string> models;  ///< that are loaded; any bytes but 0
};

/// Reads the page once: the worker may change it at any time. All is empty if it can't be read.
WorkerStatus readStatusPage(const base::Fd& page);

}  // namespace isopool::supervisor
