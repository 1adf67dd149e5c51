// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>

#include "base/loop/event_loop.h"

namespace isopool::base {

/// Tells when a borrowed descriptor (socket, pipe, pidfd) is ready, until it is destroyed, which
/// any of its callbacks may do. The descriptor must stay open for as long.
class ReadinessWatch {
 public:
  ReadinessWatch(EventLoop& loop, int fd);
  ReadinessWatch(const ReadinessWatch&) = delete;
  ReadinessWatch& operator=(const ReadinessWatch&) = delete;
  ~ReadinessWatch();

  /// Calls `readable` whenever there is something to read, again and again. Once.
  void onReadable(std::function<void()> readable);
  /// No `readable` until resume(): what there is to read stays.
  void pause();
  void resume();
  /// Calls `writable` one time, when there is room.
  void onceWritable(std::function<void()> writable);

 private:
  struct State;
  static void awaitReadable(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

}  // namespace isopool::base
