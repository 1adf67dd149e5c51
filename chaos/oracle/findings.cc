// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/oracle/findings.h"

#include <algorithm>

namespace chaos {

namespace {
// Of each fault: one that is found again in every episode must not hide the others.
constexpr size_t kMostLines = 10;
}  // namespace

const char* nameOf(Fault fault) {
  switch (fault) {
    case Fault::kHung:
      return "hung";
    case Fault::kWrong:
      return "wrong";
    case Fault::kLost:
      return "lost";
    case Fault::kDoubled:
      return "doubled";
    case Fault::kSurvivorCrashed:
      return "survivors_crashed";
    case Fault::kLeakedBytes:
      return "leaked_bytes";
    case Fault::kLeakedDescriptors:
      return "leaked_fds";
    case Fault::kLeakedProcesses:
      return "leaked_processes";
    case Fault::kFaults:
      break;
  }
  return "unknown";
}

void Findings::add(Fault fault, const std::string& what, uint64_t count) {
  counts_[static_cast<size_t>(fault)] += count;
  const std::lock_guard lock(mutex_);
  if (linesOf_[static_cast<size_t>(fault)]++ >= kMostLines) return;
  lines_.push_back(std::string(nameOf(fault)) + ": " + what);
}

bool Findings::none() const {
  return std::all_of(counts_.begin(), counts_.end(), [](const auto& count) { return count == 0; });
}

std::vector<std::string> Findings::lines() const {
  const std::lock_guard lock(mutex_);
  return lines_;
}

}  // namespace chaos
