// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/asio/io_context.hpp>

#include "ipc/ids.h"
#include "supervisor/memory_stock.h"
#include "supervisor/options.h"
#include "supervisor/zygote.h"

namespace isopool::supervisor {

/// What clients and workers borrow from the supervisor, which outlives them.
struct Services {
  boost::asio::io_context& io;
  const Options& options;
  MemoryStock& stock;
  Zygote& zygote;
  ipc::Epoch lastEpoch;  ///< given out so far

  ipc::Epoch nextEpoch() { return lastEpoch = ipc::Epoch(lastEpoch.value + 1); }
};

}  // namespace isopool::supervisor
