// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

namespace isopool::batch {

/// When a run that goes wrong altogether is ended: BatchJob::maxFailures and maxFailureShare.
struct FailureLimit {
  std::optional<uint64_t> count;
  std::optional<double> share;

  /// The share says nothing before so many items have an outcome.
  static constexpr uint64_t kFirstItems = 100;

  bool isSet() const { return count || share; }

  bool exceeded(uint64_t failed, uint64_t done) const {
    if (count && failed > *count) return true;
    const uint64_t settled = failed + done;
    return share && settled >= kFirstItems &&
           static_cast<double>(failed) > *share * static_cast<double>(settled);
  }
};

}  // namespace isopool::batch
