// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/loop/readiness_watch.h"
#include "base/loop/timer.h"
#include "ipc/control/frame.h"
#include "ipc/control/send_queue.h"

namespace isopool::supervisor {

/// A control connection on the event loop. Sending never waits: what the socket does not take is
/// queued with its own descriptors and leaves when there is room. Past the limits of ipc::SendQueue
/// the peer is given up: where it may read nothing for long and others decide how much there is to
/// tell it, they see to it that little waits(). Not thread-safe. Its callbacks must not destroy it.
class Connection {
 public:
  struct Events {
    /// A frame came. May throw ipc::ProtocolError: the connection is then given up.
    std::function<void(ipc::Frame&)> frame;
    /// The connection is over, told once: `reason` is empty if the peer closed it. Never called
    /// from within send().
    std::function<void(const std::string& reason)> over;
    /// A message has gone out whole, or one that was not taken may be offered again (optional).
    std::function<void()> sent;
  };

  Connection(base::EventLoop& loop, base::Fd socket, Events events);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    enqueue(ipc::encodeMessage(message, descriptors.size()), descriptors);
  }
  /// The same, but false if the message has to wait and no descriptor is left for copies of its
  /// own: it is not taken then, and `sent` says when it may be again. The shortage is ours.
  template <typename Message>
  bool offer(const Message& message, std::initializer_list<int> descriptors) {
    return tryEnqueue(ipc::encodeMessage(message, descriptors.size()), descriptors);
  }
  /// Messages that are queued.
  size_t waiting() const { return queue_.size(); }
  /// Something waits for descriptors that we or the kernel lack, whether the peer reads or not.
  bool heldUp() const { return retry_.isSet() || offerRetry_.isSet(); }
  /// Handles what has come so far, now.
  void readNow();

 private:
  void enqueue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors);
  bool tryEnqueue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors);
  ipc::SendQueue::State queue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors);
  void flush();
  void handle(ipc::SendQueue::State state);
  void endOnceRead();
  void giveUp(std::string reason);
  void readWhenDescriptorsFit();

  base::EventLoop& loop_;
  ipc::ControlSocket socket_;
  Events events_;
  std::optional<base::ReadinessWatch> watch_;
  base::Timer retry_;
  base::Timer readRetry_;
  base::Timer offerRetry_;
  ipc::SendQueue queue_;
  bool lacksDescriptors_ = false;
  bool lacksCopies_ = false;
  bool awaitsRoom_ = false;
  bool crowded_ = false;
  bool peerGone_ = false;
  bool over_ = false;
  /// Handlers on their way hold it weakly: they outlive the connection.
  std::shared_ptr<Connection*> self_;
};

/// The descriptor of a frame that must have one. Throws ipc::ProtocolError.
base::Fd onlyDescriptor(ipc::Frame& frame);

}  // namespace isopool::supervisor
