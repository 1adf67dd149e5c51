// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "ipc/control/messages.h"
#include "testing/process_mark.h"

namespace isopool::tests {

/// A folder of its own below the temporary ones, gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A real isopoold --listen with plain workers. It serves when the constructor returns, and nothing
/// of it is left when the object, or the test's process, is dead.
class OwnSupervisor {
 public:
  explicit OwnSupervisor(std::vector<std::string> flags = {"--workers", "2"});
  ~OwnSupervisor();
  OwnSupervisor(const OwnSupervisor&) = delete;
  OwnSupervisor& operator=(const OwnSupervisor&) = delete;

  const std::string& address() const { return address_; }
  pid_t processId() const { return processId_; }
  void signal(int number) const { ::kill(processId_, number); }
  /// Over a connection of its own.
  ipc::Report report() const;
  /// Asks until the report is as wanted; it, or the last one with a failure of the test.
  ipc::Report waitFor(const std::function<bool(const ipc::Report&)>& condition) const;

 private:
  ProcessMark mark_;
  TemporaryFolder folder_;
  std::string address_;
  pid_t guardian_ = -1;
  pid_t processId_ = -1;
};

}  // namespace isopool::tests
