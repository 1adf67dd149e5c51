// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace isopool {

/// How often an operation took how long: counts in buckets whose bounds are the same in every
/// histogram, so that histograms can be added and subtracted. A bucket is at most a sixteenth of
/// its times wide, as in HdrHistogram: below 16 ns each nanosecond has one, above each power of two
/// has sixteen, up to about 18 minutes; the last one holds all longer times. A plain value.
class LatencyHistogram {
 public:
  using Time = std::chrono::nanoseconds;

  static constexpr size_t kBuckets = 608;
  /// The bucket of a time; negative times count as 0.
  static size_t bucketOf(Time time) {
    const uint64_t value = time.count() > 0 ? static_cast<uint64_t>(time.count()) : 0;
    if (value < kParts) return static_cast<size_t>(value);
    const auto power = static_cast<size_t>(63 - __builtin_clzll(value));
    const auto part = static_cast<size_t>(value >> (power - kPartBits)) & (kParts - 1);
    return std::min((power - kPartBits + 1) * kParts + part, kBuckets - 1);
  }
  /// The longest time of the bucket.
  static Time longestOf(size_t bucket) {
    if (bucket < kParts) return Time(bucket);
    const size_t shift = bucket / kParts - 1;
    const uint64_t next = (kParts + bucket % kParts + 1) << shift;
    return Time(static_cast<int64_t>(next - 1));
  }

  void add(Time time) { addTo(bucketOf(time), 1); }
  /// Throws std::out_of_range if there is no such bucket.
  void addTo(size_t bucket, uint64_t count) {
    if (counts_.empty()) counts_.resize(kBuckets);
    counts_.at(bucket) += count;
    total_ += count;
  }

  /// The number of times.
  uint64_t count() const { return total_; }
  uint64_t countOf(size_t bucket) const { return counts_.empty() ? 0 : counts_.at(bucket); }
  /// A time that `percent` per cent of the times do not exceed, to within a sixteenth; zero if the
  /// histogram is empty. percentile(50) is the median, percentile(100) the longest time.
  Time percentile(double percent) const {
    const auto wanted = static_cast<double>(total_) * std::clamp(percent, 0.0, 100.0) / 100;
    uint64_t seen = 0;
    for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
      seen += counts_[bucket];
      if (seen > 0 && static_cast<double>(seen) >= wanted) return longestOf(bucket);
    }
    return Time(0);
  }

  LatencyHistogram& operator+=(const LatencyHistogram& other) {
    for (size_t bucket = 0; bucket < other.counts_.size(); ++bucket) {
      if (other.counts_[bucket] != 0) addTo(bucket, other.counts_[bucket]);
    }
    return *this;
  }
  /// What was added since `earlier`, which must be an earlier state of this histogram.
  LatencyHistogram operator-(const LatencyHistogram& earlier) const {
    LatencyHistogram difference;
    for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
      const uint64_t before = earlier.countOf(bucket);
      if (counts_[bucket] > before) difference.addTo(bucket, counts_[bucket] - before);
    }
    return difference;
  }

 private:
  static constexpr size_t kPartBits = 4;
  static constexpr size_t kParts = size_t{1} << kPartBits;

  std::vector<uint64_t> counts_;  // empty: all zero
  uint64_t total_ = 0;
};

}  // namespace isopool
