// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/log/line_rate.h"
#include "base/loop/readiness_watch.h"
#include "base/loop/timer.h"

namespace isopool::supervisor {

/// The socket that programs connect to, of a shared supervisor.
struct ListeningSocket {
  base::Fd socket;
  base::Fd lock;     ///< lock of the path, held while the supervisor serves it
  std::string path;  ///< empty if the service manager made the socket, which also removes it
  /// Device and inode of the file that listenAt() made.
  std::pair<dev_t, ino_t> file{};
};

/// Makes a Unix stream socket at `path`, mode 0600, or 0660 for `group` (empty: none). Removes the
/// socket file of a process that has ended; fails if any process serves the path. Waits up to two
/// seconds for a supervisor that is ending. Leaves a file `path`.lock behind, which has the process
/// id of the supervisor that serves the path. Call it while this process has one thread: it changes
/// the umask for a moment. Throws std::runtime_error with one line.
ListeningSocket listenAt(const std::string& path, const std::string& group);
/// The socket that a predecessor has made, with its lock; without a lock the service manager made
/// it.
ListeningSocket inherited(base::Fd socket, base::Fd lock);
/// True if another supervisor listens at the path of a socket that this process has made and
/// closed.
bool isTakenOver(const ListeningSocket& closed);

/// Accepts connections on the event loop and never blocks. Without free descriptors it logs that,
/// and tries again after 100 ms; connections wait meanwhile. Does not check the peers. Not
/// thread-safe.
class Listener {
 public:
  /// Calls `accepted` with each connection, close-on-exec and non-blocking, from the loop. It must
  /// not destroy the listener.
  Listener(base::EventLoop& loop, ListeningSocket socket, std::function<void(base::Fd)> accepted);
  /// Removes the socket's file if it is the one that listenAt() made.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// What a successor needs to listen at the same socket.
  const ListeningSocket& socket() const { return socket_; }
  /// Accepts no more connections, and releases the address: another supervisor may take it.
  void close();
  /// The same for a socket that a successor has: connections that wait are the successor's, and so
  /// are the file and the lock.
  void leaveToSuccessor();
  /// Removes the socket's file if it is the one that listenAt() made: after leaveToSuccessor(), if
  /// the successor has ended, too.
  void removeFile() const;

 private:
  bool accept();
  void watch();

  base::EventLoop& loop_;
  base::LineRate failureRate_;
  ListeningSocket socket_;
  const std::function<void(base::Fd)> accepted_;
  std::unique_ptr<base::ReadinessWatch> watch_;
  base::Timer retry_;
};

}  // namespace isopool::supervisor
