// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace isopool::supervisor {

/// How much of what workers and the zygote print becomes lines of the log: all of them together, in
/// an hour. One process gets at most as much as all leave free, so that a single one uses half, and
/// the output of others still finds room. Counts the lines that do not become lines of the log. Not
/// thread-safe.
class OutputQuota {
 public:
  /// What one process has used.
  struct Share {
    uint64_t hour = 0;  ///< the number of the hour that `bytes` are of
    uint64_t bytes = 0;
  };
  enum class Reason {
    kRate,  ///< more than WorkerOutput::kBytesPerSecond of one process
    kQuota
  };
  static constexpr std::array<const char*, 2> kReasonNames{"rate", "quota"};
  /// Lines by Reason, since the start.
  using Dropped = std::array<uint64_t, kReasonNames.size()>;

  /// `bytes`: of lines of the log in an hour; 0: no limit. The first hour begins now.
  OutputQuota(uint64_t bytes, base::TimePoint now) : limit_(bytes), began_(now) {}

  void setLimit(uint64_t bytes) { limit_ = bytes; }
  uint64_t limit() const { return limit_; }
  /// True if the process may have another line. Call charge() when it is written.
  bool allows(Share& share, base::TimePoint now);
  void charge(Share& share, uint64_t bytes);
  /// Until all may be used again.
  base::Milliseconds leftOfHour(base::TimePoint now) const;
  void countDropped(Reason reason) { ++dropped_[static_cast<size_t>(reason)]; }
  const Dropped& dropped() const { return dropped_; }

 private:
  void begin(base::TimePoint now);

  uint64_t limit_;
  base::TimePoint began_;
  uint64_t hour_ = 0;
  uint64_t used_ = 0;
  Dropped dropped_{};
};

}  // namespace isopool::supervisor
