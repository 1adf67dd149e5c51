// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "base/loop/readiness_watch.h"
#include "base/loop/timer.h"
#include "base/weak_self.h"
#include "ipc/control/frame.h"
#include "ipc/control/send_queue.h"

namespace isopool::supervisor {

/// A control connection on the event loop. Sending never waits: messages that the socket does not
/// take are queued, with copies of their descriptors, and are sent when there is room. If the queue
/// exceeds the limits of ipc::SendQueue, the connection ends. A sender whose peer may not read for
/// long must limit what it queues, by waiting(). Not thread-safe: used on the loop's thread. Its
/// callbacks must not destroy it.
class Connection {
 public:
  struct Events {
    /// A frame was received. If this throws (ipc::ProtocolError), the connection ends; a
    /// std::bad_alloc is passed on to the loop.
    std::function<void(ipc::Frame&)> frame;
    /// The connection has ended. `reason` is empty if the peer closed it or died. Called once,
    /// never from within send().
    std::function<void(const std::string& reason)> over;
    /// A message has left, or a message that offer() did not take may be offered again (optional).
    std::function<void()> sent;
  };

  Connection(base::EventLoop& loop, base::Fd socket, Events events);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  /// Sends or queues a message. `descriptors` stay the caller's.
  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    enqueue(ipc::encodeMessage(message, descriptors.size()), descriptors);
  }
  /// The same, but returns false and does not take the message if it has to be queued and this
  /// process has no free descriptor for the copies. Events::sent is called when it is time to try
  /// again.
  template <typename Message>
  bool offer(const Message& message, std::initializer_list<int> descriptors) {
    return tryEnqueue(ipc::encodeMessage(message, descriptors.size()), descriptors);
  }
  /// How many messages are queued.
  size_t waiting() const { return queue_.size(); }
  /// True if a message waits because this process or the kernel lacks descriptors: a delay that is
  /// not the peer's.
  bool heldUp() const { return retry_.isSet() || offerRetry_.isSet(); }
  /// Handles all frames that have arrived.
  void readNow();
  /// True if no message waits to be sent, and none has arrived that is not handled yet.
  bool isIdle() const;
  /// The peer sees the end of the stream behind the messages that the socket has taken. What is
  /// queued, and later messages, are not sent. Reading goes on.
  void hangUp() noexcept;

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
  /// Weak handle to this object for callbacks that are still pending: they may outlive it.
  base::WeakSelf<Connection> self_;
};

/// Takes the descriptor of a frame. Throws ipc::ProtocolError if it does not have exactly one.
base::Fd onlyDescriptor(ipc::Frame& frame);

}  // namespace isopool::supervisor
