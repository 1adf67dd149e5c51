// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "worker/sandbox/sandbox.h"

namespace isopool::worker {

/// Whether this process can still do for one client what it could before it ran another one's code:
/// take memory, open descriptors, start threads, make system calls. The call loop's thread.
class FitnessCheck {
 public:
  /// Notes what holds before any user code ran.
  explicit FitnessCheck(const Sandbox& sandbox);

  /// The client's call is next. Why the worker is not fit for it, else empty. Looks only when
  /// another client was served before, and at most every 100 ms once the sandbox is closed.
  std::string failureBefore(uint64_t client);
  /// The same now, whoever is next.
  std::string failure() const;

 private:
  std::string failureOfFilters() const;

  const Sandbox& sandbox_;
  std::optional<uint64_t> filters_;  ///< of system calls, on the main thread
  std::array<rlimit, 5> limits_{};
  uint64_t lastClient_ = 0;
  int64_t checkedAt_ = 0;
};

}  // namespace isopool::worker
