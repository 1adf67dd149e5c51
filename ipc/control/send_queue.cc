// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/control/send_queue.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace isopool::ipc {

namespace {

constexpr size_t kMostFrames = 16'384;
constexpr size_t kMostBytes = size_t{16} << 20;

}  // namespace

SendQueue::State SendQueue::send(ControlSocket& socket, OutgoingFrame frame,
                                 std::initializer_list<int> descriptors,
                                 std::optional<Subject> subject) {
  if (!frames_.empty()) {
    const State appended = append(std::move(frame), descriptors, subject);
    return appended == State::kEmpty ? state_ : appended;
  }
  switch (socket.trySend(frame, descriptors.begin(), descriptors.size())) {
    case SendResult::kSent:
      state_ = State::kEmpty;
      if (sent_) sent_();
      return State::kEmpty;
    case SendResult::kPeerGone:
      return state_ = State::kPeerGone;
    case SendResult::kWouldBlock:
      state_ = State::kFull;
      break;
    case SendResult::kCrowded:
      state_ = State::kCrowded;
      break;
  }
  const State appended = append(std::move(frame), descriptors, subject);
  return appended == State::kEmpty ? state_ : appended;
}

// Returns kEmpty if the queue has taken the frame.
SendQueue::State SendQueue::append(OutgoingFrame frame, std::initializer_list<int> descriptors,
                                   std::optional<Subject> subject) {
  if (frames_.size() >= kMostFrames || bytes_ + frame.bytes.size() > kMostBytes) {
    return State::kOverflow;
  }
  Waiting waiting{std::move(frame), {}, subject};
  if (!waiting.frame.begun()) {
    for (const int descriptor : descriptors) {
      waiting.descriptors.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
      if (!waiting.descriptors.back().valid()) return State::kOutOfFiles;
    }
  }
  bytes_ += waiting.frame.bytes.size();
  frames_.push_back(std::move(waiting));
  return State::kEmpty;
}

SendQueue::State SendQueue::flush(ControlSocket& socket) {
  while (!frames_.empty()) {
    Waiting& first = frames_.front();
    std::vector<int> descriptors;
    for (const base::Fd& descriptor : first.descriptors) descriptors.push_back(descriptor.get());
    switch (socket.trySend(first.frame, descriptors.data(), descriptors.size())) {
      case SendResult::kWouldBlock:
        return state_ = State::kFull;
      case SendResult::kCrowded:
        return state_ = State::kCrowded;
      case SendResult::kPeerGone:
        clear();
        return state_ = State::kPeerGone;
      case SendResult::kSent:
        bytes_ -= first.frame.bytes.size();
        frames_.pop_front();
        if (sent_) sent_();
        break;
    }
  }
  return state_ = State::kEmpty;
}

bool SendQueue::revoke(const Subject& subject) {
  const auto found = std::find_if(frames_.begin(), frames_.end(), [&](const Waiting& waiting) {
    return waiting.subject == subject && !waiting.frame.begun();
  });
  if (found == frames_.end()) return false;
  bytes_ -= found->frame.bytes.size();
  frames_.erase(found);
  return true;
}

void SendQueue::clear() {
  frames_.clear();
  bytes_ = 0;
}

}  // namespace isopool::ipc
