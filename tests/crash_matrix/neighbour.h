// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tests/crash_matrix/forked.h"
#include "tests/ipc/channel/peers.h"

namespace isopool::tests {

/// Another program on the same supervisor, which calls both of its workers all the while. Its calls
/// are declared idempotent, so that each has to be answered, whoever dies, and rightly.
class Neighbour {
 public:
  explicit Neighbour(const std::string& address);

  /// True once it has had its first answer.
  [[nodiscard]] bool hasCome();
  /// True once it has had more answers since the call, and no other outcome ever.
  [[nodiscard]] bool goesOn();
  /// Lets it leave; true if it came to its end without a fault.
  [[nodiscard]] bool leaves();
  pid_t pid() const { return process_.pid(); }

 private:
  struct Progress {
    std::atomic<uint64_t> answers{0};
    std::atomic<bool> stop{false};
  };
  static void live(const std::string& address, Progress& progress);

  SharedWithChildren<Progress> progress_;
  Forked process_;
};

}  // namespace isopool::tests
