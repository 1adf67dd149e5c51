// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "base/clock.h"
#include "supervisor/config/options.h"

namespace isopool::supervisor {

/// How long one worker lives before it is recycled: the thresholds of Recycling, each with a jitter
/// of this worker, so that the workers of a group are not all replaced at the same time. Not
/// thread-safe.
class LifeSpan {
 public:
  /// The memory of the worker, in bytes. The functions are called only if a threshold needs them
  /// and a call was completed, because they take longer than the rest.
  struct Memory {
    std::function<uint64_t()> own;   ///< what it has beside files and memory of its clients
    std::function<uint64_t()> left;  ///< what it may still have of sandbox.memory
  };

  /// Without a limit.
  LifeSpan() = default;
  LifeSpan(const Recycling& recycling, std::minstd_rand& random);

  /// Why the worker's life is over, with the setting that says so; empty while it is not over.
  /// `calls`: how many it has completed. Growth counts from the first time that a call was
  /// completed.
  std::string whyOver(uint64_t calls, base::Milliseconds age, const Memory& memory);
  /// The life is over now, for this reason.
  void end(std::string why) { endedBecause_ = std::move(why); }
  /// A call failed because it needed more than sandbox.memory.
  void memoryRanOut() { memoryRanOut_ = true; }

 private:
  std::string whyMemoryIsOver(const Memory& memory);

  uint64_t calls_ = 0;
  base::Milliseconds age_{0};
  uint64_t memoryGrowth_ = 0;
  uint64_t memoryCap_ = 0;
  std::string endedBecause_;
  bool memoryRanOut_ = false;
  std::optional<uint64_t> memoryAfterFirstCall_;
};

}  // namespace isopool::supervisor
