// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/loop/readiness_watch.h"
#include "base/loop/timer.h"

namespace isopool::supervisor {

/// The socket at which programs find a shared supervisor.
struct ListeningSocket {
  base::Fd socket;
  base::Fd lock;     ///< of this path, held as long as it is served
  std::string path;  ///< empty if somebody else made it (socket activation) and removes it
  /// What was made at the path: its device and inode.
  std::pair<dev_t, ino_t> file{};
};

/// Makes a Unix stream socket at `path`, mode 0600, or 0660 for `group`. A socket that a dead
/// process left there is removed; one that a process serves is not disturbed, whichever program
/// that is. Throws std::runtime_error with one line.
ListeningSocket listenAt(const std::string& path, const std::string& group);

/// Accepts connections on the event loop. Out of descriptors it waits a while; it never blocks.
class Listener {
 public:
  /// `accepted` gets each connection, close-on-exec and non-blocking.
  Listener(base::EventLoop& loop, ListeningSocket socket, std::function<void(base::Fd)> accepted);
  /// Removes the socket's file if it is the one that listenAt() made.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  void accept();
  void watch();

  base::EventLoop& loop_;
  ListeningSocket socket_;
  const std::function<void(base::Fd)> accepted_;
  std::unique_ptr<base::ReadinessWatch> watch_;
  base::Timer retry_;
};

}  // namespace isopool::supervisor
