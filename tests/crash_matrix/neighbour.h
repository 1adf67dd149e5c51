// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tests/crash_matrix/forked.h"
#include "tests/ipc/channel/peers.h"

namespace isopool::tests {

/// Another program on the same supervisor, which continuously calls both of its workers. Its calls
/// are declared idempotent, so each must be answered correctly, whichever process dies.
class Neighbour {
 public:
  explicit Neighbour(const std::string& address);

  /// Waits for its first answer; false if none comes in time.
  [[nodiscard]] bool hasCome();
  /// Waits until it has received three more answers; false if they do not come in time. A wrong
  /// answer or an error ends the neighbour.
  [[nodiscard]] bool goesOn();
  /// Asks it to leave; true if it exits without an error.
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
