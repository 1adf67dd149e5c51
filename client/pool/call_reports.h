// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/mutex.h"
#include "client/control/supervisor_connection.h"
#include "client/pool/model_figures.h"
#include "isopool/latency_histogram.h"

namespace isopool::client {

/// Reports a pool's calls to a shared supervisor, for its operator (ipc::ReportCalls). Any thread.
class CallReports {
 public:
  /// Sends what has been counted since the last report, and how many calls wait now, if there is
  /// anything to send. Does nothing if the supervisor is private, or does not support the message.
  /// Does not wait. Throws std::bad_alloc; then calls may stay unreported.
  void send(const PoolModels& models, size_t waiting, const SupervisorConnection& connection);
  /// Call before the first call at another supervisor: it gets no report of the calls until now,
  /// because its counters are totals since its own start. Throws std::bad_alloc.
  void beginAnew(const PoolModels& models);

 private:
  struct Reported {
    uint64_t failed = 0;
    LatencyHistogram latency;
  };

  base::Mutex mutex_;
  std::map<std::string, Reported> reported_ ISOPOOL_GUARDED_BY(mutex_);
  uint32_t reportedWaiting_ ISOPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace isopool::client
