// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>

#include "base/ids.h"
#include "client/process_fork.h"
#include "ipc/control/frame.h"
#include "ipc/control/send_queue.h"

namespace isopool::client {

/// The writing half of a connection to a supervisor, shared with what may outlive it. Any thread,
/// and none waits: what the socket does not take, because the supervisor is stopped or slow, stands
/// in a queue that the connection's own thread sends. Does nothing in a process that was forked
/// from the one that made it: the connection is its parent's.
class ControlWriter {
 public:
  /// `wake`: an eventfd that is written to when there is something for flush() to do.
  ControlWriter(ipc::ControlSocket& socket, int wake) : socket_(&socket), wake_(wake) {}

  /// In the order of the calls. What is sent to a supervisor that is gone is lost with it.
  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    if (generation_ != forkGeneration()) return;
    enqueue(ipc::encodeMessage(message, descriptors.size()), descriptors, std::nullopt);
  }
  /// The same for a message that makes a package known; revoke() may take it back.
  template <typename Message>
  void sendPackage(base::PackageId package, const Message& message, int object) {
    if (generation_ != forkGeneration()) return;
    enqueue(ipc::encodeMessage(message, 1), {object},
            ipc::SendQueue::Subject(kOnlyClient, package.value));
  }
  /// Has the connection's own thread look around. Any thread.
  void wake();
  /// True if the package's message has not left: it never will.
  bool revoke(base::PackageId package);

  /// Sends what the socket takes. For the connection's own thread. Past kOverflow or kOutOfFiles
  /// messages were dropped, and the connection is of no more use.
  ipc::SendQueue::State flush();
  /// Nothing is sent from now on.
  void close();

 private:
  static constexpr uint64_t kOnlyClient = 0;

  void enqueue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors,
               std::optional<ipc::SendQueue::Subject> package);
  void wakeLocked();

  const uint32_t generation_ = forkGeneration();
  std::mutex mutex_;
  ipc::ControlSocket* socket_;
  const int wake_;
  ipc::SendQueue queue_;
  std::optional<ipc::SendQueue::State> failure_;
};

}  // namespace isopool::client
