// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>

#include "base/fd.h"
#include "base/unix_address.h"

namespace isopool::supervisor {

/// Sends the notifications of the supervisor to the service manager from another process, the
/// guardian: it is the process that the manager started, and with NotifyAccess=main the manager
/// ignores notifications of all other processes, also those of user code. Keeps their order.
/// Never waits: while the manager does not read, notifications stay in the supervisor's socket. Not
/// thread-safe.
class NotificationRelay {
 public:
  /// `manager`: a datagram socket and the address of the manager. `input`: the end of a pair of
  /// datagram sockets whose other end the supervisor writes to. Both without blocking.
  NotificationRelay(base::Fd manager, const base::UnixAddress& address, base::Fd input)
      : manager_(std::move(manager)), address_(address), input_(std::move(input)) {}

  /// A relay of another supervisor's notifications to the same manager. Throws
  /// base::SystemCallError.
  NotificationRelay forAnother(base::Fd input) const {
    return {manager_.duplicate(), address_, std::move(input)};
  }

  /// Sends what the supervisor has written, as far as the manager takes it.
  void forward();
  /// True if the manager did not take a notification: call forward() again after a while. Else call
  /// it when input() is readable.
  bool blocked() const { return !unsent_.empty(); }

  const base::Fd& input() const { return input_; }
  const base::Fd& manager() const { return manager_; }

 private:
  bool receive();

  base::Fd manager_;
  base::UnixAddress address_;
  base::Fd input_;
  std::string unsent_;
};

}  // namespace isopool::supervisor
