// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/notification_relay.h"

#include <sys/socket.h>

namespace isopool::supervisor {

bool NotificationRelay::receive() {
  char text[4096];
  const ssize_t bytes = ::recv(input_.get(), text, sizeof text, MSG_DONTWAIT);
  if (bytes <= 0) return false;
  unsent_.assign(text, static_cast<size_t>(bytes));
  return true;
}

void NotificationRelay::forward() {
  while (blocked() || receive()) {
    if (::sendto(manager_.get(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                 address_.get(), address_.bytes()) < 0) {
      return;
    }
    unsent_.clear();
  }
}

}  // namespace isopool::supervisor
