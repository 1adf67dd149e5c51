// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/call_reports.h"

#include <algorithm>
#include <utility>

#include "ipc/control/client_messages.h"

namespace isopool::client {

namespace {

constexpr uint32_t kSinceVersion = 4;  // of the protocol
constexpr size_t kMostInMessage = 256;
constexpr uint64_t kNanosecondsPerMicrosecond = 1000;

void addTimes(const LatencyHistogram& latency, ipc::ModelCalls& calls) {
  calls.times.resize(ipc::kCallTimeBounds.size() + 1);
  uint64_t nanoseconds = 0;
  for (size_t bucket = 0; bucket < LatencyHistogram::kBuckets; ++bucket) {
    const uint64_t count = latency.countOf(bucket);
    if (count == 0) continue;
    const auto longest = static_cast<uint64_t>(LatencyHistogram::longestOf(bucket).count());
    const auto shortest =
        bucket == 0 ? 0
                    : static_cast<uint64_t>(LatencyHistogram::longestOf(bucket - 1).count()) + 1;
    const auto bound = std::lower_bound(ipc::kCallTimeBounds.begin(), ipc::kCallTimeBounds.end(),
                                        longest / kNanosecondsPerMicrosecond);
    calls.times[static_cast<size_t>(bound - ipc::kCallTimeBounds.begin())] += count;
    nanoseconds += count * ((shortest + longest) / 2);
  }
  calls.sumMicroseconds = nanoseconds / kNanosecondsPerMicrosecond;
}

}  // namespace

void CallReports::send(const PoolModels& models, const InFlight& calls,
                       const SupervisorConnection& connection) {
  if (!connection.shared() || connection.protocolVersion() < kSinceVersion) return;
  ControlWriter& writer = *connection.writer();
  base::MutexLock lock(mutex_);
  ipc::ReportCalls message;
  message.waiting = calls.waiting;
  message.awaited = calls.awaited;
  for (ModelStatistics& model : models.statistics()) {
    Reported& reported = reported_[model.name];
    ipc::ModelCalls ended;
    const LatencyHistogram latency = model.latency - reported.latency;
    ended.answered = latency.count();
    ended.failed = model.failed - reported.failed;
    if (ended.answered == 0 && ended.failed == 0) continue;
    ended.model = model.name;
    addTimes(latency, ended);
    message.models.push_back(std::move(ended));
    reported = {model.failed, std::move(model.latency)};
    if (message.models.size() == kMostInMessage) {
      writer.send(message);
      message.models.clear();
    }
  }
  // Repeated while there are calls: the supervisor may be another one than before.
  const bool any = calls.waiting + calls.awaited != 0;
  if (message.models.empty() && !any && !reportedAny_) return;
  writer.send(message);
  reportedAny_ = any;
}

void CallReports::beginAnew(const PoolModels& models) {
  base::MutexLock lock(mutex_);
  for (ModelStatistics& model : models.statistics()) {
    reported_[model.name] = {model.failed, std::move(model.latency)};
  }
}

}  // namespace isopool::client
