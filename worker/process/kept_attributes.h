// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <array>
#include <optional>
#include <string>

namespace isopool::worker {

/// Attributes of this process and its main thread that any code can change: working folder, locale,
/// the thread's signal mask, processors, scheduling policy and memory policy, and those that are a
/// number (kept_attributes.cc has the list). What one program's code sets is not for another's. The
/// main thread.
class KeptAttributes {
 public:
  /// Records them. To be made before any user code runs.
  KeptAttributes();

  /// Sets those that have changed as they were recorded. Returns what could not be set, in words;
  /// empty: nothing.
  std::string restore() const noexcept;

 private:
  static constexpr size_t kNumbers = 15;
  static constexpr size_t kNodes = 1024;  // as many NUMA nodes as a kernel supports

  struct MemoryPolicy {
    int mode = 0;
    std::array<unsigned long, kNodes / (8 * sizeof(unsigned long))> nodes{};

    bool operator==(const MemoryPolicy&) const = default;
  };
  static std::optional<MemoryPolicy> memoryPolicy() noexcept;

  const char* restoreNumbers() const noexcept;
  const char* restoreThread() const noexcept;

  std::string folder_;  ///< empty: it is not known
  std::string locale_;
  std::array<std::optional<long>, kNumbers> numbers_;  ///< nullopt: the kernel does not tell
  sigset_t blocked_{};
  cpu_set_t processors_{};
  int policy_ = SCHED_OTHER;
  sched_param parameters_{};
  std::optional<MemoryPolicy> memoryPolicy_;  ///< nullopt: the kernel does not tell
};

}  // namespace isopool::worker
