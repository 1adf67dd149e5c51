// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/life_span.h"

#include <algorithm>

namespace isopool::supervisor {

LifeSpan::LifeSpan(const Recycling& recycling, std::minstd_rand& random) {
  const double jitter = recycling.jitterPercent / 100.0;
  const double factor = std::uniform_real_distribution<double>(1 - jitter, 1 + jitter)(random);
  const auto scaled = [&](uint64_t value) {
    return value == 0 ? 0 : std::max<uint64_t>(1, static_cast<uint64_t>(value * factor));
  };
  calls_ = scaled(recycling.calls);
  age_ = base::Milliseconds(scaled(static_cast<uint64_t>(recycling.age.count())));
  memoryGrowth_ = scaled(recycling.memoryGrowth);
}

std::string LifeSpan::whyOver(uint64_t calls, base::Milliseconds age,
                              const std::function<uint64_t()>& memory) {
  if (calls_ != 0 && calls >= calls_) {
    return std::to_string(calls) + " calls (ISOPOOL_RECYCLE_CALLS)";
  }
  if (age_.count() != 0 && age >= age_) {
    return std::to_string(age.count() / 1000) + " s old (ISOPOOL_RECYCLE_AGE)";
  }
  if (memoryGrowth_ == 0 || calls == 0) return {};
  const uint64_t bytes = memory();
  if (!memoryAfterFirstCall_) memoryAfterFirstCall_ = bytes;
  const uint64_t before = *memoryAfterFirstCall_;
  if (bytes < before || bytes - before < memoryGrowth_) return {};
  return "its memory grew by " + std::to_string((bytes - before) >> 20) +
         " MiB (ISOPOOL_RECYCLE_MEMORY_GROWTH)";
}

}  // namespace isopool::supervisor
