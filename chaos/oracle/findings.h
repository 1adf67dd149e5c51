// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace chaos {

/// Faults that must not happen. Each has a count in the report.
enum class Fault {
  kHung,     ///< a call without an outcome though its time is over
  kWrong,    ///< a wrong byte, or a failure that docs/errors.md does not describe
  kLost,     ///< a call without an outcome though its program lives, or a value without effect
  kDoubled,  ///< an effect twice, two outcomes, or an effect of a call that never ran
  kSurvivorCrashed,  ///< a process died that was not attacked
  kLeakedBytes,
  kLeakedDescriptors,
  kLeakedProcesses,
  kFaults,
};
const char* nameOf(Fault fault);

/// The faults that were found. Thread-safe.
class Findings {
 public:
  void add(Fault fault, const std::string& what, uint64_t count = 1);
  uint64_t count(Fault fault) const { return counts_[static_cast<size_t>(fault)]; }
  bool none() const;
  /// The first findings of each fault, one line each.
  std::vector<std::string> lines() const;

 private:
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Fault::kFaults)> counts_{};
  mutable std::mutex mutex_;
  std::array<size_t, static_cast<size_t>(Fault::kFaults)> linesOf_{};  // guarded by mutex_
  std::vector<std::string> lines_;
};

}  // namespace chaos
