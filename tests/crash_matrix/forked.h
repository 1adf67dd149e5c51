// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace isopool::tests {

/// Python and torch come up in a second or two; on a machine with other work it takes longer.
inline constexpr std::chrono::seconds kStartPatience(60);

/// A fork of this process, which has loaded torch and started no thread: a program that is there in
/// milliseconds. Killed at the object's end.
class Forked {
 public:
  /// Ends with exit code 0 when `life` returns, with 1 and its text on the error stream when it
  /// throws or a check of its own failed.
  explicit Forked(const std::function<void()>& life);
  ~Forked();
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;

  pid_t pid() const { return pid_; }
  /// Its wait status; nothing if it does not end in time.
  std::optional<int> waitForEnd(std::chrono::milliseconds patience);

 private:
  pid_t pid_ = -1;
};

inline bool wasKilled(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
inline bool wentWell(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

/// A request for a crash point that the first process takes which looks at the variable: see
/// ipc::armCrashPointFromEnvironment().
class Trap {
 public:
  explicit Trap(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  void set(const std::string& request) const;
  /// The process that was armed, or died; 0 as long as nobody was.
  pid_t armed() const { return processOf(""); }
  pid_t dead() const { return processOf(".reached"); }
  /// Forgets all who were armed, and takes the request back if nobody was.
  void clear() const;

 private:
  pid_t processOf(const std::string& suffix) const;

  const std::string path_;
};

}  // namespace isopool::tests
