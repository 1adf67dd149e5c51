// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <random>

#include "base/ids.h"
#include "base/loop/event_loop.h"
#include "supervisor/config/options.h"
#include "supervisor/pool/memory_stock.h"
#include "supervisor/pool/package_library.h"
#include "supervisor/pool/zygote.h"
#include "supervisor/processes/output_quota.h"
#include "supervisor/processes/processes.h"

namespace isopool::supervisor {

/// What clients, groups and workers use of the supervisor, which outlives them. It owns the
/// referenced objects. Used only on the loop's thread.
struct Services {
  base::EventLoop& loop;
  Processes& processes;
  const Options& options;  ///< a reload of the settings changes it, between two events
  MemoryStock& stock;
  Zygote& zygote;
  OutputQuota& outputQuota;
  PackageLibrary packages;
  std::minstd_rand random;  ///< for jitter, not for secrets
  base::Epoch lastEpoch;    ///< the last that nextEpoch() has returned

  /// Returns an epoch that no worker of this supervisor has had.
  base::Epoch nextEpoch() { return lastEpoch = base::Epoch(lastEpoch.value + 1); }
};

}  // namespace isopool::supervisor
