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

namespace isopool::supervisor {

/// What started us and wants to know how we are: systemd, or whatever speaks its sd_notify
/// protocol. Without one all verbs do nothing. Nothing here waits: while the manager reads nothing,
/// the last state is kept and sent with the next sign of life. Not thread-safe.
class ServiceManager {
 public:
  /// Nobody.
  ServiceManager() = default;
  /// The one that the environment names (NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID). Takes these
  /// variables out of the environment: they are not for our children. To be called in the process
  /// that was started, before it forks.
  static ServiceManager fromEnvironment();

  bool listening() const { return address_.has_value(); }
  /// How often to call alive(), half of what the manager's watchdog allows; nothing if it has none.
  std::optional<std::chrono::microseconds> signOfLifePeriod() const { return period_; }

  /// We serve; also the end of a reload.
  void ready(std::string_view status);
  /// We read our settings anew; ready() says when that is done.
  void reloading();
  void stopping(std::string_view status);
  /// For people: one line for `systemctl status`.
  void status(std::string_view text);
  void alive();

 private:
  void tell(std::string state);
  bool send(const std::string& datagram) const;

  std::optional<base::UnixAddress> address_;
  std::optional<std::chrono::microseconds> period_;
  base::Fd socket_;
  std::string unsent_;
};

/// The service manager handed over sockets that we can't serve: one line says what was wrong.
class ActivationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The listening socket that the service manager opened for us (LISTEN_FDS, LISTEN_PID,
/// LISTEN_FDNAMES), close-on-exec; not valid if it opened none. Takes these variables out of the
/// environment. To be called in the process that was started, before it forks. Throws
/// ActivationError if it is anything but one listening Unix stream socket.
base::Fd takeActivatedSocket();

/// Where that socket lies; empty if it has no path.
std::string pathOfSocket(const base::Fd& socket);

}  // namespace isopool::supervisor
