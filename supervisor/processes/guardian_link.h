// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>

#include "ipc/control/guardian_messages.h"
#include "supervisor/processes/connection.h"

namespace isopool::supervisor {

/// A shared supervisor's connection to its guardian, by which another supervisor takes over its
/// address. Not thread-safe: used on the loop's thread.
class GuardianLink {
 public:
  struct Events {
    /// The successor accepts connections: this supervisor drains and ends.
    std::function<void()> successorServes;
    /// The successor ended before it served; `text` says how.
    std::function<void(const std::string& text)> successorEnded;
  };

  GuardianLink(base::EventLoop& loop, base::Fd socket, Events events);

  /// Asks for a successor, which shares the listening socket and, unless it is -1, the lock.
  void startSuccessor(const ipc::StartSuccessor& request, int socket, int lock);
  /// This supervisor, a successor, accepts connections.
  void serves();

 private:
  void handle(const ipc::Frame& frame);
  void ended(const std::string& text);

  const Events events_;
  bool awaitsSuccessor_ = false;
  bool gone_ = false;
  Connection connection_;
};

}  // namespace isopool::supervisor
