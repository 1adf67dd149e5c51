// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <vector>

#include "client/process_fork.h"
#include "ipc/control/frame.h"
#include "ipc/fd.h"
#include "ipc/ids.h"

namespace isopool::client {

/// The writing half of a connection to a supervisor, shared with what may outlive it. Any thread, and
/// none waits: what the socket does not take, because the supervisor is stopped or slow, stands in a
/// queue that the connection's own thread sends. Does nothing in a process that was forked from the one
/// that made it: the connection is its parent's.
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
  void sendPackage(ipc::PackageId package, const Message& message, int object) {
    if (generation_ != forkGeneration()) return;
    enqueue(ipc::encodeMessage(message, 1), {object}, package.value);
  }
  /// True if the package's message has not left: it never will.
  bool revoke(ipc::PackageId package);

  enum class Queue : uint8_t {
    kEmpty,
    kFull,      ///< the socket is: to be called again once that is writable
    kCrowded,   ///< too many descriptors are on their way (ETOOMANYREFS): again in a moment
    kOverflow,  ///< more waits than may: messages were dropped, the connection is of no more use
  };
  /// Sends what the socket takes. For the connection's own thread.
  Queue flush();
  /// Nothing is sent from now on.
  void close();

 private:
  struct Message {
    ipc::OutgoingFrame frame;
    std::vector<ipc::Fd> descriptors;
    std::optional<uint32_t> package;
  };

  void enqueue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors,
               std::optional<uint32_t> package);
  bool append(ipc::OutgoingFrame& frame, std::initializer_list<int> descriptors,
              std::optional<uint32_t> package);

  const uint32_t generation_ = forkGeneration();
  std::mutex mutex_;
  ipc::ControlSocket* socket_;
  const int wake_;
  std::deque<Message> queue_;
  size_t queuedBytes_ = 0;
  bool overflow_ = false;
};

}  // namespace isopool::client
