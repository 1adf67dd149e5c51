// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/control_writer.h"

#include <unistd.h>

#include <utility>

#include "base/without_cancellation.h"

namespace isopool::client {

using State = ipc::SendQueue::State;

void ControlWriter::enqueue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors,
                            std::optional<ipc::SendQueue::Subject> package) {
  const base::WithoutCancellation complete;
  base::MutexLock lock(mutex_);
  if (socket_ == nullptr || failure_) return;
  const bool waited = !queue_.empty();
  const State state = queue_.send(*socket_, std::move(frame), descriptors, package);
  // kPeerGone: the thread that reads from the connection handles the supervisor's death.
  if (state == State::kEmpty || state == State::kPeerGone) return;
  if (state == State::kOverflow || state == State::kOutOfFiles) {
    failure_ = state;
    queue_.clear();
  } else if (waited) {
    return;
  }
  wakeLocked();
}

void ControlWriter::wake() {
  if (generation_ != forkGeneration()) return;
  base::MutexLock lock(mutex_);
  if (socket_ != nullptr) wakeLocked();
}

void ControlWriter::wakeLocked() {
  const base::WithoutCancellation complete;
  const uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof one);
}

bool ControlWriter::revoke(base::PackageId package) {
  if (generation_ != forkGeneration()) return false;
  base::MutexLock lock(mutex_);
  return queue_.revoke({kOnlyClient, package.value});
}

State ControlWriter::flush() {
  base::MutexLock lock(mutex_);
  if (failure_) return *failure_;
  if (socket_ == nullptr) return State::kEmpty;
  return queue_.flush(*socket_);
}

void ControlWriter::close() {
  base::MutexLock lock(mutex_);
  socket_ = nullptr;
  queue_.clear();
}

}  // namespace isopool::client
