// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace isopool::tests {

/// A control group whose processes can be stopped all at once, as `docker pause` does. Of version 1
/// or 2, whichever this process may use.
class Freezer {
 public:
  /// Nothing, and the reason in `why`, if this process can make no such group.
  static std::optional<Freezer> make(std::string& why);
  Freezer(Freezer&& other) noexcept;
  Freezer& operator=(Freezer&&) = delete;
  /// Thaws the group and moves its processes back.
  ~Freezer();

  /// Moves these processes into the group; those that they fork from then on are in it, too. One
  /// that has ended is ignored.
  void add(const std::vector<pid_t>& processes) const;
  /// Returns when all are stopped.
  void freeze() const;
  void thaw() const;
  /// A shell command that freezes the group for a time, for a shell that a process of the group
  /// starts: it leaves the group first.
  std::string freezingFor(int milliseconds) const;

 private:
  Freezer(std::string folder, std::string parent, int version)
      : folder_(std::move(folder)), parent_(std::move(parent)), version_(version) {}
  std::string stateFile() const;
  const char* frozen() const { return version_ == 1 ? "FROZEN" : "1"; }
  const char* thawed() const { return version_ == 1 ? "THAWED" : "0"; }
  bool isFrozen() const;

  std::string folder_;  ///< empty: moved from
  std::string parent_;
  int version_;
};

}  // namespace isopool::tests
