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

/// Adopts and reaps orphans of this process's descendants. Keeps the exit status of processes that
/// this process has started. Made once, before the first Spawned.
class Orphanage {
 public:
  static Orphanage& instance();
  /// Starts a child with `spawn`, which sets the child's number and returns an error number.
  /// Forgets the exit status of an earlier process with the same number, which is reaped by then.
  int start(const std::function<int(pid_t&)>& spawn, pid_t& pid);
  /// The exit status as waitpid() returns it, which is then forgotten. Nothing if the process does
  /// not end in time.
  std::optional<int> statusOf(pid_t pid, std::chrono::milliseconds patience);

 private:
  Orphanage();
};

/// A child process with a pipe to its standard input and one from its standard output.
class Spawned {
 public:
  /// Starts the process; throws std::runtime_error if that fails. `log`: the file of
  /// its error stream.
  Spawned(std::vector<std::string> words, std::vector<std::string> variables,
          const std::string& log);
  /// Kills the process if it lives.
  ~Spawned();
  Spawned(const Spawned&) = delete;
  Spawned& operator=(const Spawned&) = delete;

  pid_t pid() const { return pid_; }
  bool alive() const;
  void say(const std::string& line) const;
  /// The next line of its output; nothing if there is none in time, or if it is dead.
  std::optional<std::string> hear(std::chrono::milliseconds patience);
  /// Waits for its end. Its wait status, or nothing if it does not end in time.
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
