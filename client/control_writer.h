// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>
#include <mutex>

#include "client/process_fork.h"
#include "ipc/control/frame.h"

namespace isopool::client {

/// The writing half of a connection to a supervisor, shared with what may outlive it. Any thread. Does
/// nothing in a process that was forked from the one that made it: the connection is its parent's.
class ControlWriter {
 public:
  explicit ControlWriter(ipc::ControlSocket& socket) : socket_(&socket) {}

  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    if (generation_ != forkGeneration()) return;
    std::lock_guard lock(mutex_);
    if (socket_ != nullptr) socket_->send(message, descriptors);
  }
  /// Nothing is sent from now on.
  void close() {
    std::lock_guard lock(mutex_);
    socket_ = nullptr;
  }

 private:
  const uint32_t generation_ = forkGeneration();
  std::mutex mutex_;
  ipc::ControlSocket* socket_;
};

}  // namespace isopool::client
