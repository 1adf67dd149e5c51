// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/unix_address.h"
#include "supervisor/processes/notification_relay.h"

namespace isopool::supervisor {

/// The service manager that started this process and gets its state: systemd, or another one with
/// the sd_notify protocol. Without one all notifications do nothing. Never waits: if the manager
/// does not read, the last state is kept and sent with the next alive(). Errors are ignored: the
/// supervisor serves without its manager, too. Not thread-safe.
class ServiceManager {
 public:
  /// No service manager.
  ServiceManager() = default;
  /// The manager that the environment names (NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID). Removes
  /// these variables from the environment: they are not for child processes. Call it in the process
  /// that was started, before it forks. An address that can't be used is logged, as if there were
  /// no manager. Throws base::SystemCallError.
  static ServiceManager fromEnvironment();

  /// The manager of a supervisor whose guardian forwards the notifications: `relay` is the other
  /// end of NotificationRelay's input; not valid if there is no manager. Takes WATCHDOG_USEC from
  /// the environment.
  static ServiceManager behind(base::Fd relay);

  /// True if there is a service manager.
  bool listening() const { return socket_.valid(); }
  /// From now on notifications go through the returned relay, which another process forwards. Call
  /// it before the process forks. Nothing if there is no service manager. Throws
  /// base::SystemCallError.
  std::optional<NotificationRelay> throughRelay();
  /// How often to call alive(): half of the manager's watchdog time; nothing if it has no watchdog.
  std::optional<std::chrono::microseconds> signOfLifePeriod() const { return period_; }

  // `status` and `text` are shown to operators; line breaks in them become spaces.

  /// The supervisor serves; also ends a reload.
  void ready(std::string_view status);
  /// The supervisor reads its settings again, until ready() is called.
  void reloading();
  /// The supervisor shuts down.
  void stopping(std::string_view status);
  /// One line for operators, in `systemctl status`. Lost if the manager does not read.
  void status(std::string_view text);
  /// Resets the manager's watchdog. If this is not called for twice signOfLifePeriod(), the manager
  /// kills this process.
  void alive();

 private:
  void tell(std::string state);
  bool send(const std::string& datagram) const;

  std::optional<base::UnixAddress> address_;  ///< nothing: the socket is connected to a relay
  std::optional<std::chrono::microseconds> period_;
  base::Fd socket_;
  std::string unsent_;
};

/// The service manager handed over sockets that isopoold can't serve. The text is one line.
class ActivationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Returns the listening socket that the service manager opened for this process (LISTEN_FDS,
/// LISTEN_PID, LISTEN_FDNAMES), close-on-exec; not valid if it opened none. Removes these variables
/// from the environment. Call it in the process that was started, before it forks. Throws
/// ActivationError if it is anything but one listening Unix stream socket.
base::Fd takeActivatedSocket();

/// The path of a listening socket; empty if it has none.
std::string pathOfSocket(const base::Fd& socket);

}  // namespace isopool::supervisor
