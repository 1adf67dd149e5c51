// SPDX-License-Identifier: BSD-3-Clause
#include "client/control_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace isopool::client {

namespace {

// A supervisor may be stopped for long (in a debugger): what waits for it is bounded, not how long.
constexpr size_t kMostMessages = 16'384;
constexpr size_t kMostBytes = size_t{16} << 20;

bool isWritable(int fd) {
  pollfd asked{fd, POLLOUT, 0};
  return ::poll(&asked, 1, 0) == 1 && (asked.revents & POLLOUT) != 0;
}

}  // namespace

void ControlWriter::enqueue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors,
                            std::optional<uint32_t> package) {
  std::lock_guard lock(mutex_);
  if (socket_ == nullptr || overflow_) return;
  if (queue_.empty()) {
    const auto result = socket_->trySend(frame, descriptors.begin(), descriptors.size());
    // That the supervisor is gone is found by the thread that reads.
    if (result != ipc::SendResult::kWouldBlock) return;
  }
  if (!append(frame, descriptors, package)) {
    overflow_ = true;
    queue_.clear();
  } else if (queue_.size() > 1) {
    return;
  }
  const uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof one);
}

bool ControlWriter::append(ipc::OutgoingFrame& frame, std::initializer_list<int> descriptors,
                           std::optional<uint32_t> package) {
  if (queue_.size() >= kMostMessages || queuedBytes_ + frame.bytes.size() > kMostBytes)
    return false;
  Message message{std::move(frame), {}, package};
  if (!message.frame.begun()) {
    for (const int descriptor : descriptors) {
      message.descriptors.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
      if (!message.descriptors.back().valid()) return false;
    }
  }
  queuedBytes_ += message.frame.bytes.size();
  queue_.push_back(std::move(message));
  return true;
}

bool ControlWriter::revoke(ipc::PackageId package) {
  if (generation_ != forkGeneration()) return false;
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(queue_.begin(), queue_.end(), [&](const Message& message) {
    return message.package == package.value && !message.frame.begun();
  });
  if (found == queue_.end()) return false;
  queuedBytes_ -= found->frame.bytes.size();
  queue_.erase(found);
  return true;
}

ControlWriter::Queue ControlWriter::flush() {
  std::lock_guard lock(mutex_);
  if (overflow_) return Queue::kOverflow;
  while (socket_ != nullptr && !queue_.empty()) {
    Message& first = queue_.front();
    std::vector<int> descriptors;
    for (const ipc::Fd& descriptor : first.descriptors) descriptors.push_back(descriptor.get());
    const auto result = socket_->trySend(first.frame, descriptors.data(), descriptors.size());
    if (result == ipc::SendResult::kWouldBlock) {
      return isWritable(socket_->fd()) ? Queue::kCrowded : Queue::kFull;
    }
    if (result == ipc::SendResult::kPeerGone) {
      queue_.clear();
      queuedBytes_ = 0;
      break;
    }
    queuedBytes_ -= first.frame.bytes.size();
    queue_.pop_front();
  }
  return Queue::kEmpty;
}

void ControlWriter::close() {
  std::lock_guard lock(mutex_);
  socket_ = nullptr;
  queue_.clear();
}

}  // namespace isopool::client
