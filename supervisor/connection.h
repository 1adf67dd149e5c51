// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ipc/control/frame.h"
#include "ipc/control/send_queue.h"
#include "supervisor/readiness_watch.h"
#include "supervisor/timer.h"

namespace isopool::supervisor {

/// A control connection on the event loop. Sending never waits: what the socket does not take is
/// queued with its own descriptors and leaves when there is room. A peer may read nothing for as long as
/// it runs user code, so what is queued must be bounded by what there is, and not by how often it
/// changed: a message that came to nothing is revoked. Past a limit of bytes the peer is given up. Not thread-safe. Its callbacks must not destroy it.
class Connection {
 public:
  struct Events {
    /// A frame came. May throw ipc::ProtocolError: the connection is then given up.
    std::function<void(ipc::Frame&)> frame;
    /// The connection is over, told once: `reason` is empty if the peer closed it. Never called
    /// from within send().
    std::function<void(const std::string& reason)> over;
    /// A message has gone out whole (optional).
    std::function<void()> sent;
  };

  Connection(EventLoop& loop, ipc::Fd socket, Events events);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    enqueue(ipc::encodeMessage(message, descriptors.size()), descriptors);
  }
  /// The same for a message about something that may end before the message has left: revoke().
  template <typename Message>
  void sendAbout(ipc::PackageId subject, uint64_t client, const Message& message,
                 std::initializer_list<int> descriptors) {
    enqueue(ipc::encodeMessage(message, descriptors.size()), descriptors,
            ipc::SendQueue::Subject{client, subject.value});
  }
  /// Takes such a message back. False if the peer has got it, or a part of it.
  bool revoke(ipc::PackageId subject, uint64_t client);
  /// Nothing is queued.
  bool idle() const { return queue_.empty(); }
  /// Handles what has come so far, now.
  void readNow();

 private:
  void enqueue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors,
               std::optional<ipc::SendQueue::Subject> subject = std::nullopt);
  void flush();
  void handle(ipc::SendQueue::State state);
  void endOnceRead();
  void giveUp(std::string reason);
  void readWhenDescriptorsFit();

  EventLoop& loop_;
  ipc::ControlSocket socket_;
  Events events_;
  std::optional<ReadinessWatch> watch_;
  Timer retry_;
  Timer readRetry_;
  ipc::SendQueue queue_;
  bool lacksDescriptors_ = false;
  bool crowded_ = false;
  bool peerGone_ = false;
  bool over_ = false;
  /// Handlers on their way hold it weakly: they outlive the connection.
  std::shared_ptr<Connection*> self_;
};

/// The descriptor of a frame that must have one. Throws ipc::ProtocolError.
ipc::Fd onlyDescriptor(ipc::Frame& frame);

}  // namespace isopool::supervisor
