// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/transport/deadline.h"
#include "isopool/statistics.h"

namespace isopool::client {

/// Counts the calls of one model of a pool. Any thread; no member waits.
class ModelFigures {
 public:
  void answered(Clock::duration time) {
    counts_[LatencyHistogram::bucketOf(std::chrono::duration_cast<std::chrono::nanoseconds>(time))]
        .fetch_add(1, std::memory_order_relaxed);
  }
  void failed() { failed_.fetch_add(1, std::memory_order_relaxed); }
  /// Adds the present values.
  void describe(ModelStatistics& model) const;

 private:
  std::atomic<uint64_t> failed_{0};
  std::array<std::atomic<uint64_t>, LatencyHistogram::kBuckets> counts_{};
};

/// The figures of a pool's models by name. They stay when a model is unloaded, so that no total
/// falls; objects with the same name have the same figures. Any thread.
class PoolModels {
 public:
  /// The figures of the model with this name; new ones for a new name.
  std::shared_ptr<ModelFigures> of(const std::string& name);
  /// By name; ModelStatistics::workers is 0.
  std::vector<ModelStatistics> statistics() const;

 private:
  mutable base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<ModelFigures>> byName_ ISOPOOL_GUARDED_BY(mutex_);
};

}  // namespace isopool::client
