// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/connection.h"

#include <fcntl.h>

#include <algorithm>
#include <new>
#include <utility>

#include "supervisor/log.h"

namespace isopool::supervisor {

namespace {

// A peer that is stopped (in a debugger) may stay so: what waits for it is bounded, not how long.
constexpr size_t kMaxQueuedFrames = 16384;
constexpr size_t kMaxQueuedBytes = 16u << 20;
constexpr Milliseconds kDescriptorsInFlightRetry(5);
constexpr Milliseconds kOutOfDescriptors(100);

std::vector<int> rawDescriptors(const std::vector<ipc::Fd>& descriptors) {
  std::vector<int> raw;
  for (const ipc::Fd& descriptor : descriptors) raw.push_back(descriptor.get());
  return raw;
}

}  // namespace

Connection::Connection(EventLoop& loop, ipc::Fd socket, Events events)
    : loop_(loop),
      socket_(std::move(socket)),
      events_(std::move(events)),
      watch_(std::in_place, loop, socket_.fd()),
      retry_(loop),
      readRetry_(loop),
      self_(std::make_shared<Connection*>(this)) {
  watch_->onReadable([this] { readNow(); });
}

Connection::~Connection() = default;

void Connection::enqueue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors,
                         std::optional<Subject> subject) {
  if (over_ || peerGone_) return;
  if (queue_.empty()) {
    switch (socket_.trySend(frame, descriptors.begin(), descriptors.size())) {
      case ipc::SendResult::kSent:
        if (events_.sent) events_.sent();
        return;
      case ipc::SendResult::kPeerGone:
        return endOnceRead();
      case ipc::SendResult::kWouldBlock:
        break;
    }
  }
  queuedBytes_ += frame.bytes.size();
  if (queue_.size() >= kMaxQueuedFrames || queuedBytes_ > kMaxQueuedBytes) {
    return giveUp("it reads none of its control messages");
  }
  Queued queued{std::move(frame), {}, subject};
  if (!queued.frame.begun()) {
    for (const int descriptor : descriptors) {
      queued.descriptors.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
      if (!queued.descriptors.back().valid()) return giveUp("too many open files");
    }
  }
  queue_.push_back(std::move(queued));
  if (queue_.size() == 1) retryLater();
}

bool Connection::revoke(ipc::PackageId subject, uint64_t client) {
  const auto found = std::find_if(queue_.begin(), queue_.end(), [&](const Queued& queued) {
    return queued.subject == Subject{client, subject.value} && !queued.frame.begun();
  });
  if (found == queue_.end()) return false;
  queuedBytes_ -= found->frame.bytes.size();
  queue_.erase(found);
  return true;
}

void Connection::retryLater() {
  const auto retry = [self = std::weak_ptr(self_)] {
    if (const auto alive = self.lock()) (*alive)->flush();
  };
  // Too many descriptors in flight leave the socket writable all the while.
  if (writableWithoutProgress_) return retry_.setAfter(kDescriptorsInFlightRetry, retry);
  watch_->onceWritable(retry);
}

void Connection::flush() {
  bool progress = false;
  while (!over_ && !peerGone_ && !queue_.empty()) {
    Queued& first = queue_.front();
    const size_t before = first.frame.sent;
    const std::vector<int> raw = rawDescriptors(first.descriptors);
    switch (socket_.trySend(first.frame, raw.data(), raw.size())) {
      case ipc::SendResult::kPeerGone:
        return endOnceRead();
      case ipc::SendResult::kWouldBlock:
        writableWithoutProgress_ = !progress && first.frame.sent == before;
        return retryLater();
      case ipc::SendResult::kSent:
        progress = true;
        queuedBytes_ -= first.frame.bytes.size();
        queue_.pop_front();
        if (events_.sent) events_.sent();
        break;
    }
  }
}

// The shortage is ours: the peer's message waits for its end.
void Connection::readWhenDescriptorsFit() {
  if (!std::exchange(lacksDescriptors_, true)) {
    log(LogLevel::kError,
        "a message has to wait: isopoold has as many open files as it may have (ulimit -n, "
        "LimitNOFILE)");
  }
  watch_->pause();
  readRetry_.setAfter(kOutOfDescriptors, [self = std::weak_ptr(self_)] {
    const auto alive = self.lock();
    if (alive == nullptr || (*alive)->over_) return;
    (*alive)->watch_->resume();
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
    // Not the peer's doing, and what it asked for is half done: nobody can go on from there.
    throw;
  } catch (const std::exception& error) {  // ProtocolError, or a descriptor that could not be used
    gone = true;
    reason = error.what();
  }
  if (gone) giveUp(std::move(reason));
}

// The peer takes nothing any more. What it said before is read: it may name a process.
void Connection::endOnceRead() {
  peerGone_ = true;
  queue_.clear();
  loop_.post([self = std::weak_ptr(self_)] {
    if (const auto alive = self.lock()) (*alive)->readNow();
    if (const auto alive = self.lock()) (*alive)->giveUp("");
  });
}

void Connection::giveUp(std::string reason) {
  if (std::exchange(over_, true)) return;
  watch_.reset();
  queue_.clear();
  loop_.post([self = std::weak_ptr(self_), reason = std::move(reason)] {
    if (const auto alive = self.lock()) (*alive)->events_.over(reason);
  });
}

ipc::Fd onlyDescriptor(ipc::Frame& frame) {
  if (frame.descriptors.size() != 1) throw ipc::ProtocolError("a message lacks its descriptor");
  return std::move(frame.descriptors.front());
}

}  // namespace isopool::supervisor
