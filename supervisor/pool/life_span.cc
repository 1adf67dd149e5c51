// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/life_span.h"

#include <algorithm>

namespace isopool::supervisor {

namespace {

// A worker is replaced if less than this part of its memory cap is left between two calls: 1/8, and
// 1/2 once a call ran out of memory, because that call may have freed what it could still get.
constexpr uint64_t kLeastShare = 8;
constexpr uint64_t kLeastShareAfterLack = 2;

}  // namespace

LifeSpan::LifeSpan(const Recycling& recycling, std::minstd_rand& random) {
  const double jitter = recycling.jitterPercent / 100.0;
  const double factor = std::uniform_real_distribution<double>(1 - jitter, 1 + jitter)(random);
  const auto scaled = [&](uint64_t value) {
    return value == 0 ? 0 : std::max<uint64_t>(1, static_cast<uint64_t>(value * factor));
  };
  calls_ = scaled(recycling.calls);
  age_ = base::Milliseconds(scaled(static_cast<uint64_t>(recycling.age.count())));
  memoryGrowth_ = scaled(recycling.memoryGrowth);
  memoryCap_ = recycling.memoryCap;
}

std::string LifeSpan::whyOver(uint64_t calls, base::Milliseconds age, const Memory& memory) {
  if (!endedBecause_.empty()) return endedBecause_;
  if (calls_ != 0 && calls >= calls_) {
    return std::to_string(calls) + " calls (ISOPOOL_RECYCLE_CALLS)";
  }
  if (age_.count() != 0 && age >= age_) {
    return std::to_string(age.count() / 1000) + " s old (ISOPOOL_RECYCLE_AGE)";
  }
  return calls == 0 ? std::string() : whyMemoryIsOver(memory);
}

std::string LifeSpan::whyMemoryIsOver(const Memory& memory) {
  if (memoryGrowth_ != 0) {
    const uint64_t bytes = memory.own();
    if (!memoryAfterFirstCall_) memoryAfterFirstCall_ = bytes;
    const uint64_t before = *memoryAfterFirstCall_;
    if (bytes >= before && bytes - before >= memoryGrowth_) {
      return "its memory grew by " + std::to_string((bytes - before) >> 20) +
             " MiB (ISOPOOL_RECYCLE_MEMORY_GROWTH)";
    }
  }
  if (memoryCap_ == 0) return {};
  const uint64_t left = memory.left();
  if (left >= memoryCap_ / (memoryRanOut_ ? kLeastShareAfterLack : kLeastShare)) return {};
  return std::string(memoryRanOut_ ? "a call ran out of memory, and " : "") +
         std::to_string(left >> 20) + " of its " + std::to_string(memoryCap_ >> 20) +
         " MiB are left (ISOPOOL_WORKER_MEMORY)";
}

}  // namespace isopool::supervisor
