// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>
#include <mutex>

#include "ipc/control/frame.h"

namespace isopool::client {

/// The writing half of a connection to a supervisor, shared with what may outlive it. Any thread.
class ControlWriter {
 public:
  explicit ControlWriter(ipc::ControlSocket& socket) : socket_(&socket) {}

  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    std::lock_guard lock(mutex_);
    if (socket_ != nullptr) socket_->send(message, descriptors);
  }
  /// Nothing is sent from now on.
  void close() {
    std::lock_guard lock(mutex_);
    socket_ = nullptr;
  }

 private:
  std::mutex mutex_;
  ipc::ControlSocket* socket_;
};

}  // namespace isopool::client
