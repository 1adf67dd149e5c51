// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <random>

#include "base/ids.h"
#include "base/loop/event_loop.h"
#include "supervisor/config/options.h"
#include "supervisor/pool/memory_stock.h"
#include "supervisor/pool/package_library.h"
#include "supervisor/pool/zygote.h"
#include "supervisor/processes/processes.h"

namespace isopool::supervisor {

/// What clients, groups and workers borrow from the supervisor, which outlives them.
struct Services {
  base::EventLoop& loop;
  Processes& processes;
  const Options& options;  ///< may change between two events, when the configuration is read again
  MemoryStock& stock;
  Zygote& zygote;
  PackageLibrary packages;
  std::minstd_rand random;
  base::Epoch lastEpoch;  ///< given out so far

  base::Epoch nextEpoch() { return lastEpoch = base::Epoch(lastEpoch.value + 1); }
};

}  // namespace isopool::supervisor
