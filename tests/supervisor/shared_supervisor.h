// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/control/operator_messages.h"
#include "testing/process_mark.h"
#include "testing/temporary_folder.h"
#include "tests/supervisor/control_client.h"

namespace isopool::tests {

/// A real isopoold that listens in a temporary folder, with plain workers if PLAIN_WORKER is
/// defined, else with real ones. The destructor kills it, and expects all its processes to end
/// within 2 s.
class SharedSupervisor {
 public:
  explicit SharedSupervisor(std::vector<std::string> flags = {}, const std::string& settings = "");
  ~SharedSupervisor();
  SharedSupervisor(const SharedSupervisor&) = delete;
  SharedSupervisor& operator=(const SharedSupervisor&) = delete;

  /// Starts it again after it has ended, and waits until it accepts connections.
  void start();
  /// From now on start() starts this isopoold, with this program for its workers.
  void usePrograms(const std::string& isopoold, const std::string& worker);
  /// Starts another one of the same words beside it, while it drains, and waits until it accepts
  /// connections. From now on the members of this object are about that one. Returns the guardian
  /// of the former one, which the caller has to await.
  pid_t startNext();
  /// Starts it again with a pending SIGTERM. Does not wait until it accepts connections.
  void startAskedToEnd();

  const std::string& address() const { return address_; }
  const std::string& folder() const { return folder_.path(); }
  /// A new connection, on which nothing has been sent.
  ipc::ControlSocket connect() const;
  /// A client that has received Welcome. The name of its program is `program`.
  std::unique_ptr<ControlClient> attach(const std::string& program = "test") const;
  /// The same, with pool 1 of `workers` slots. Each slot has a worker.
  std::unique_ptr<ControlClient> attachWithPool(uint32_t workers,
                                                const std::string& program = "test") const;
  ipc::Report report() const;
  /// A connection on which an operator has sent Hello; invalid if nothing listens.
  ipc::ControlSocket connectOperator() const;
  /// Requests a report on it.
  static ipc::Report reportOn(ipc::ControlSocket& control);
  /// Has the supervisor act as for an operator; the token is chosen here.
  ipc::ActionDone act(ipc::Action action, uint64_t target = 0, const std::string& group = {},
                      milliseconds time = milliseconds(0)) const;
  /// The same, but the supervisor may end without an answer.
  void request(ipc::Action action, uint64_t target = 0) const;
  /// Waits until a report meets the condition. If none does, the result describes the last one.
  testing::AssertionResult waitForReport(const std::function<bool(const ipc::Report&)>& condition,
                                         milliseconds patience = milliseconds(5000)) const;

  void setMode(const std::string& mode) const;
  void writeSettings(const std::string& settings) const;
  void signal(int number) const;
  /// The process that was started: the guardian.
  pid_t pid() const { return pid_; }
  pid_t supervisorPid() const { return report().processId; }
  /// Waits for the end of the guardian. Returns its exit code (128 + N after signal N); nothing if
  /// it does not end in time.
  std::optional<int> waitForEnd(milliseconds patience = milliseconds(5000));
  const ProcessMark& mark() const { return mark_; }
  std::string log() const;

 private:
  template <typename Answer, typename Request>
  static Answer ask(ipc::ControlSocket& control, const Request& request);
  void spawn(const std::function<void()>& inChild);

  ProcessMark mark_;
  const TemporaryFolder folder_;
  std::string address_;
  std::vector<std::string> words_;
  pid_t pid_ = -1;
};

/// Waits for the end of a guardian that startNext() returned. Returns its exit code (128 + N after
/// signal N); nothing if it does not end in time.
std::optional<int> waitForEndOf(pid_t guardian, milliseconds patience = milliseconds(5000));

/// Sealed memory as of a package, for HoldPackage: pages that are filled with the letter.
base::Fd packageOf(char letter, size_t pages = 1);

/// The client of that program; null if the report has none.
const ipc::ReportedClient* clientNamed(const ipc::Report& report, const std::string& program);

}  // namespace isopool::tests
