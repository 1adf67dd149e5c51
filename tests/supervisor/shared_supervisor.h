// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "testing/process_mark.h"
#include "tests/supervisor/control_client.h"

namespace isopool::tests {

/// A real isopoold that listens, with plain workers where PLAIN_WORKER is defined, else with real
/// ones. Nothing of it outlives the object.
class SharedSupervisor {
 public:
  explicit SharedSupervisor(std::vector<std::string> flags = {}, const std::string& settings = "");
  ~SharedSupervisor();
  SharedSupervisor(const SharedSupervisor&) = delete;
  SharedSupervisor& operator=(const SharedSupervisor&) = delete;

  /// Once more, after it has ended.
  void start();
  /// The same, with a SIGTERM that waits for it. Does not wait until it serves.
  void startAskedToEnd();

  const std::string& address() const { return address_; }
  const std::string& folder() const { return folder_; }
  /// A connection that has said nothing yet.
  ipc::ControlSocket connect() const;
  /// A client that is welcome. Its program is called `program`.
  std::unique_ptr<ControlClient> attach(const std::string& program = "test") const;
  /// A client with a pool that is served.
  std::unique_ptr<ControlClient> attachWithPool(uint32_t workers,
                                                const std::string& program = "test") const;
  ipc::Report report() const;
  /// Says what the last report held if the condition did not come true.
  testing::AssertionResult waitForReport(const std::function<bool(const ipc::Report&)>& condition,
                                         milliseconds patience = milliseconds(5000)) const;

  void setMode(const std::string& mode) const;
  void writeSettings(const std::string& settings) const;
  void signal(int number) const;
  /// The process that was started: the guardian.
  pid_t pid() const { return pid_; }
  pid_t supervisorPid() const { return report().processId; }
  /// The exit code; nothing if it does not end in time.
  std::optional<int> waitForEnd(milliseconds patience = milliseconds(5000));
  const ProcessMark& mark() const { return mark_; }
  std::string log() const;

 private:
  void spawn(const std::function<void()>& inChild);

  ProcessMark mark_;
  std::string folder_;
  std::string address_;
  std::vector<std::string> words_;
  pid_t pid_ = -1;
};

}  // namespace isopool::tests
