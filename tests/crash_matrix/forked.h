// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace isopool::tests {

/// Python and torch start in one or two seconds; on a busy machine it takes longer.
inline constexpr std::chrono::seconds kStartPatience(60);

/// A fork of this process, which has loaded torch and must not have started a thread: a program
/// that starts in milliseconds. The destructor kills it.
class Forked {
 public:
  /// Runs `life` in the child. The child exits with 0 when `life` returns. If `life` throws, the
  /// child writes the error to its error stream and exits with 1; it also exits with 1 if a check
  /// failed in it.
  explicit Forked(const std::function<void()>& life);
  ~Forked();
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;

  pid_t pid() const { return pid_; }
  /// Waits for the end and returns the wait status; nothing if the process does not end in time.
  std::optional<int> waitForEnd(std::chrono::milliseconds patience);

 private:
  pid_t pid_ = -1;
};

inline bool wasKilled(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
inline bool wentWell(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

/// A file with a request for a crash point. The first process that reads the variable takes the
/// request: see ipc::armCrashPointFromEnvironment().
class Trap {
 public:
  explicit Trap(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  void set(const std::string& request) const;
  /// The process that took the request, or died at the point; 0 if none has.
  pid_t armed() const { return processOf(""); }
  pid_t dead() const { return processOf(".reached"); }
  /// Removes the request, and the records of processes that were armed or died.
  void clear() const;

 private:
  pid_t processOf(const std::string& suffix) const;

  const std::string path_;
};

}  // namespace isopool::tests
