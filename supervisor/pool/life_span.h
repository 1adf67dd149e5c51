// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>

#include "base/clock.h"
#include "supervisor/config/options.h"

namespace isopool::supervisor {

/// How long one worker lives before it is recycled: the thresholds of Recycling, each with a jitter
/// of this worker, so that the workers of a group are not all replaced at the same time. Not
/// thread-safe.
class LifeSpan {
 public:
  /// Without a limit.
  LifeSpan() = default;
  LifeSpan(const Recycling& recycling, std::minstd_rand& random);

  /// Why the worker's life is over, with the setting that says so; empty while it is not over.
  /// `calls`: how many it has completed. `memory` returns its resident anonymous memory in bytes;
  /// called only if the growth is limited and a call was completed, because it takes longer than
  /// the rest. Growth counts from the first time.
  std::string whyOver(uint64_t calls, base::Milliseconds age,
                      const std::function<uint64_t()>& memory);

 private:
  uint64_t calls_ = 0;
  base::Milliseconds age_{0};
  uint64_t memoryGrowth_ = 0;
  std::optional<uint64_t> memoryAfterFirstCall_;
};

}  // namespace isopool::supervisor
