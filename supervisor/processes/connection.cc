// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <new>
#include <utility>

#include "base/log/log.h"

namespace isopool::supervisor {

using State = ipc::SendQueue::State;

namespace {

constexpr base::Milliseconds kOutOfDescriptors(100);

void sayThatDescriptorsLack() {
  base::log(base::LogLevel::kError,
            "a message has to wait: isopoold has reached its limit of open files (ulimit -n, "
            "LimitNOFILE)");
}

}  // namespace

Connection::Connection(base::EventLoop& loop, base::Fd socket, Events events)
    : loop_(loop),
      socket_(std::move(socket)),
      events_(std::move(events)),
      watch_(std::in_place, loop, socket_.fd()),
      retry_(loop),
      readRetry_(loop),
      offerRetry_(loop),
      queue_([this] {
        if (events_.sent) events_.sent();
      }),
      self_(this) {
  watch_->onReadable([this] { readNow(); });
}

Connection::~Connection() = default;

void Connection::enqueue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors) {
  if (queue(std::move(frame), descriptors) == State::kOutOfFiles) giveUp("too many open files");
}

bool Connection::tryEnqueue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors) {
  if (queue(std::move(frame), descriptors) != State::kOutOfFiles) {
    lacksCopies_ = false;
    offerRetry_.cancel();
    return true;
  }
  if (!std::exchange(lacksCopies_, true)) sayThatDescriptorsLack();
  offerRetry_.setAfter(kOutOfDescriptors, [self = self_.weak()] {
    Connection* alive = self.get();
    if (alive != nullptr && alive->events_.sent) alive->events_.sent();
  });
  return false;
}

State Connection::queue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors) {
  if (over_ || peerGone_) return State::kPeerGone;
  const bool waited = !queue_.empty();
  const State state = queue_.send(socket_, std::move(frame), descriptors);
  // If messages were queued before, a retry is pending already.
  if (!waited || state == State::kOverflow) handle(state);
  return state;
}

void Connection::flush() {
  if (!over_ && !peerGone_) handle(queue_.flush(socket_));
}

void Connection::handle(State state) {
  const auto retry = [self = self_.weak()] {
    if (Connection* alive = self.get()) alive->flush();
  };
  switch (state) {
    case State::kEmpty:
      crowded_ = false;
      return;
    case State::kFull:
      if (std::exchange(awaitsRoom_, true)) return;
      return watch_->onceWritable([self = self_.weak()] {
        Connection* alive = self.get();
        if (alive == nullptr) return;
        alive->awaitsRoom_ = false;
        alive->flush();
      });
    case State::kCrowded:
      if (!std::exchange(crowded_, true)) {
        base::log(
            base::LogLevel::kWarning,
            "a message has to wait: the kernel passes on no more descriptors of this user "
            "(ETOOMANYREFS), because processes of this user have sent many that are not received "
            "yet; new programs wait until those processes end");
      }
      return retry_.setAfter(ipc::SendQueue::kCrowdedRetry, retry);
    case State::kPeerGone:
      return endOnceRead();
    case State::kOverflow:
      return giveUp("it does not read its control messages");
    case State::kOutOfFiles:
      return;  // the callers of queue() handle it
  }
}

// Pauses reading for a while: this process, not the peer, lacks descriptors.
void Connection::readWhenDescriptorsFit() {
  if (!std::exchange(lacksDescriptors_, true)) sayThatDescriptorsLack();
  watch_->pause();
  readRetry_.setAfter(kOutOfDescriptors, [self = self_.weak()] {
    Connection* alive = self.get();
    if (alive == nullptr || alive->over_) return;
    alive->watch_->resume();
  });
}

void Connection::readNow() {
  if (over_) return;
  if (!socket_.descriptorsFit()) return readWhenDescriptorsFit();
  lacksDescriptors_ = false;
  std::string reason;
  bool gone = false;
  try {
    gone = socket_.receive() == ipc::ReceiveResult::kPeerGone;
    while (std::optional<ipc::Frame> frame = socket_.next()) events_.frame(*frame);
  } catch (const std::bad_alloc&) {
    // The peer's request is half done and can't be continued, through no fault of the peer: the
    // supervisor ends.
    throw;
  } catch (const std::exception& error) {  // ProtocolError, or a descriptor that could not be used
    gone = true;
    reason = error.what();
  }
  if (gone) giveUp(std::move(reason));
}

bool Connection::isIdle() const {
  if (over_) return true;
  pollfd arrived{socket_.fd(), POLLIN, 0};
  return queue_.empty() && ::poll(&arrived, 1, 0) == 0;
}

void Connection::hangUp() noexcept { ::shutdown(socket_.fd(), SHUT_WR); }

// The peer has closed its end. Its earlier messages are still read: one may name a process.
void Connection::endOnceRead() {
  peerGone_ = true;
  queue_.clear();
  loop_.post([self = self_.weak()] {
    if (Connection* alive = self.get()) alive->readNow();
    if (Connection* alive = self.get()) alive->giveUp("");
  });
}

void Connection::giveUp(std::string reason) {
  if (std::exchange(over_, true)) return;
  watch_.reset();
  queue_.clear();
  loop_.post([self = self_.weak(), reason = std::move(reason)] {
    if (Connection* alive = self.get()) alive->events_.over(reason);
  });
}

base::Fd onlyDescriptor(ipc::Frame& frame) {
  if (frame.descriptors.size() != 1) throw ipc::ProtocolError("a message lacks its descriptor");
  return std::move(frame.descriptors.front());
}

}  // namespace isopool::supervisor
