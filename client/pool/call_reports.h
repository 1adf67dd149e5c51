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
  /// Calls now, as in ipc::ReportCalls.
  struct InFlight {
    uint32_t waiting = 0;
    uint32_t awaited = 0;
  };

  /// Sends what has been counted since the last report, and the calls in flight, if there is
  /// anything to send. Does nothing if the supervisor is private, or does not support the message.
  /// Does not wait. Throws std::bad_alloc; then calls may stay unreported.
  void send(const PoolModels& models, const InFlight& calls,
            const SupervisorConnection& connection);
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
  bool reportedAny_ ISOPOOL_GUARDED_BY(mutex_) = false;  ///< calls in flight
};

}  // namespace isopool::client
