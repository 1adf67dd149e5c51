// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace chaos {

/// We adopt what our descendants leave behind, and reap it. How those ended that we started is
/// kept. Makes itself once, before the first Spawned.
class Orphanage {
 public:
  static Orphanage& instance();
  /// A child, by `spawn`, which returns an error number and sets the child's. Whoever had the
  /// number before is reaped, and what is known of that one's end forgotten.
  int start(const std::function<int(pid_t&)>& spawn, pid_t& pid);
  /// As waitpid() has it; nothing if it does not end in time. Forgets it.
  std::optional<int> statusOf(pid_t pid, std::chrono::milliseconds patience);

 private:
  Orphanage();
};

/// A child process with a pipe to its standard input and one from its standard output.
class Spawned {
 public:
  /// Throws std::runtime_error. `log` gets its error stream.
  Spawned(std::vector<std::string> words, std::vector<std::string> variables,
          const std::string& log);
  /// Kills it if it lives.
  ~Spawned();
  Spawned(const Spawned&) = delete;
  Spawned& operator=(const Spawned&) = delete;

  pid_t pid() const { return pid_; }
  bool alive() const;
  void say(const std::string& line) const;
  /// The next line that it says; nothing if there is none in time, or it is dead.
  std::optional<std::string> hear(std::chrono::milliseconds patience);
  /// Its wait status, once it is dead.
  std::optional<int> waitForEnd(std::chrono::milliseconds patience);

 private:
  pid_t pid_ = -1;
  isopool::base::Fd pidfd_;
  isopool::base::Fd input_;
  isopool::base::Fd output_;
  std::string unread_;
  std::optional<int> status_;
};

}  // namespace chaos
