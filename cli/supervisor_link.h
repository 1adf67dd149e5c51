// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>

#include "ipc/control/frame.h"
#include "ipc/control/operator_messages.h"

namespace isopool::cli {

/// The supervisor can't be reached, refused the connection, or has ended. The text is one line with
/// the cause and the remedy.
class SupervisorUnreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The supervisor has closed the connection without a reason, as a process that is killed does: one
/// that ends, or hands over to another one, gives it.
class ConnectionLost : public SupervisorUnreachable {
 public:
  using SupervisorUnreachable::SupervisorUnreachable;
};

/// An operator's connection to the shared supervisor at an address. Every member that communicates
/// throws SupervisorUnreachable, and none waits longer than kPatience. Not thread-safe.
class SupervisorLink {
 public:
  static constexpr std::chrono::milliseconds kPatience{2000};

  /// Connects and introduces this process as an operator.
  explicit SupervisorLink(const std::string& address);

  /// Requests a report and waits for it.
  ipc::Report ask();

  /// Requests the settings in force and waits for them.
  ipc::SettingsInForce askSettings();

  /// Requests an action and waits for its outcome. Also throws if the supervisor is of a version
  /// that knows no actions. The token of `request` is ignored.
  ipc::ActionDone act(ipc::RequestAction request);

  // A report in steps, for a caller that waits for other events, too.
  using Clock = std::chrono::steady_clock;

  /// Requests a report. A report that was requested before is ignored when it arrives.
  void request();
  /// The descriptor that becomes readable when receive() has something to do.
  int fd() const { return socket_.fd(); }
  /// The requested report, if it has arrived. Does not wait.
  std::optional<ipc::Report> receive();
  /// The time by which receive() must have returned the report. After it call giveUp().
  Clock::time_point deadline() const { return deadline_; }
  /// Throws SupervisorUnreachable: no answer within kPatience.
  [[noreturn]] void giveUp() const;

 private:
  template <typename Message>
  std::optional<Message> receiveAnswer();
  void awaitAnswer();

  const std::string address_;
  ipc::ControlSocket socket_;
  uint64_t token_ = 0;
  Clock::time_point deadline_;
  bool answered_ = false;  ///< at least one report has arrived
  uint32_t protocol_ = 0;  ///< of Welcome: the version that both sides use; 0 until it has arrived
};

}  // namespace isopool::cli
