// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>

#include "base/loop/event_loop.h"

namespace isopool::base {

/// Calls back when a borrowed descriptor (socket, pipe, pidfd) is ready. The descriptor must stay
/// open until the watch is destroyed; any of the watch's callbacks may destroy it. All members are
/// for the loop's thread.
class ReadinessWatch {
 public:
  /// `loop` must outlive it.
  ReadinessWatch(EventLoop& loop, int fd);
  ReadinessWatch(const ReadinessWatch&) = delete;
  ReadinessWatch& operator=(const ReadinessWatch&) = delete;
  /// No callback is called any more.
  ~ReadinessWatch();

  /// Calls `readable` each time when the descriptor has something to read. Call this once.
  void onReadable(std::function<void()> readable);
  /// Stops the calls of `readable` until resume(). The data stays in the descriptor.
  void pause();
  /// Calls `readable` for what has arrived meanwhile, too.
  void resume();
  /// Calls `writable` once, when the descriptor can take data.
  void onceWritable(std::function<void()> writable);

 private:
  struct State;
  static void awaitReadable(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace isopool::base
