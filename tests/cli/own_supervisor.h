// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "ipc/control/operator_messages.h"
#include "testing/process_mark.h"
#include "testing/temporary_folder.h"

namespace isopool::tests {

/// A real isopoold --listen with plain workers. It serves when the constructor returns. The
/// destructor kills it and expects all its processes to end within 5 s; they also end with the
/// test's process.
class OwnSupervisor {
 public:
  /// Without an address it listens at one in a folder of its own.
  explicit OwnSupervisor(std::vector<std::string> flags = {"--workers", "2"},
                         std::string address = "");
  ~OwnSupervisor();
  OwnSupervisor(const OwnSupervisor&) = delete;
  OwnSupervisor& operator=(const OwnSupervisor&) = delete;

  const std::string& address() const { return address_; }
  pid_t processId() const { return processId_; }
  void signal(int number) const { ::kill(processId_, number); }
  /// Asks for a report over a new connection.
  ipc::Report report() const;
  /// Asks until a report meets the condition, and returns that report. After 10 s the test fails,
  /// and the last report is returned.
  ipc::Report waitFor(const std::function<bool(const ipc::Report&)>& condition) const;

 private:
  ProcessMark mark_;
  TemporaryFolder folder_;
  std::string address_;
  pid_t guardian_ = -1;
  pid_t processId_ = -1;
};

}  // namespace isopool::tests
