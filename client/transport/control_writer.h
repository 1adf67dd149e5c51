// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "base/ids.h"
#include "base/mutex.h"
#include "client/program/process_fork.h"
#include "ipc/control/frame.h"
#include "ipc/control/send_queue.h"

namespace isopool::client {

/// The writing half of a connection to a supervisor, shared by the connection and objects that may
/// outlive it. Any thread. No member blocks: if the socket is full because the supervisor is
/// stopped or slow, messages wait in a queue that the connection's own thread sends. In a forked
/// child nothing is sent, woken or revoked: the connection belongs to the parent.
///
/// An object may keep the writer after the connection has ended: messages are then dropped without
/// an error. The same happens after the queue has overflowed, see flush().
class ControlWriter {
 public:
  /// Neither `socket` nor `wake` is owned: both must stay open until close(). `wake`: an eventfd;
  /// written to when flush() has something to do.
  ControlWriter(ipc::ControlSocket& socket, int wake) : socket_(&socket), wake_(wake) {}

  /// Messages leave in the order of the calls. A message to a dead supervisor is dropped without
  /// an error: the thread that reads from the connection finds the death. The caller keeps
  /// `descriptors` and may close them when this returns. Throws std::bad_alloc; then the message
  /// was not sent.
  template <typename Message>
  void send(const Message& message, std::initializer_list<int> descriptors = {}) {
    if (generation_ != forkGeneration()) return;
    enqueue(ipc::encodeMessage(message, descriptors.size()), descriptors, std::nullopt);
  }
  /// The same for a message that introduces a package; revoke() may take it back.
  template <typename Message>
  void sendPackage(base::PackageId package, const Message& message, int object) {
    if (generation_ != forkGeneration()) return;
    enqueue(ipc::encodeMessage(message, 1), {object},
            ipc::SendQueue::Subject(kOnlyClient, package.value));
  }
  /// Wakes the connection's own thread. Does nothing after close().
  void wake();
  /// Removes the package's message from the queue. False if it is not in the queue: it was sent or
  /// dropped before. Then the supervisor has to be asked to unload the package.
  bool revoke(base::PackageId package);

  /// Sends what the socket accepts. For the connection's own thread. kFull: call again when the
  /// socket is writable; kCrowded: after SendQueue::kCrowdedRetry. After kOverflow or kOutOfFiles
  /// messages were dropped, and the connection can't be used any more.
  ipc::SendQueue::State flush();
  /// Drops the queue; nothing is sent from now on. Call before the socket is closed.
  void close();

 private:
  static constexpr uint64_t kOnlyClient = 0;

  void enqueue(ipc::OutgoingFrame frame, std::initializer_list<int> descriptors,
               std::optional<ipc::SendQueue::Subject> package);
  void wakeLocked() ISOPOOL_REQUIRES(mutex_);

  const uint32_t generation_ = forkGeneration();
  base::Mutex mutex_;
  ipc::ControlSocket* socket_ ISOPOOL_GUARDED_BY(mutex_);
  const int wake_;
  ipc::SendQueue queue_ ISOPOOL_GUARDED_BY(mutex_);
  std::optional<ipc::SendQueue::State> failure_ ISOPOOL_GUARDED_BY(mutex_);
};

}  // namespace isopool::client
