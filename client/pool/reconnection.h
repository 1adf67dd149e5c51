// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"

namespace isopool::client {

class Pool;

/// Attaches a pool to its shared supervisor's successor: one that listens at the same address. A
/// thread of its own tries that after each loss until it succeeds: at once, then with pauses that
/// double up to a second and differ from program to program, because all programs of the supervisor
/// come back at the same time. The thread is there from the start: when a supervisor is lost,
/// memory may be too short for a new one. Any thread.
class Reconnection {
 public:
  /// `pool` owns this.
  explicit Reconnection(Pool& pool) : pool_(pool) {}

  /// Starts the thread, which waits for begin(). Call once. Throws std::system_error.
  void start();
  /// Call when the pool's connection was lost. Does not wait; no effect after close().
  void begin() noexcept;
  /// Ends the attempts and waits for the thread: a tenth of a second, or until the supervisor has
  /// answered to the package that is being given to it.
  void close();
  /// Why the last attempt failed; empty if none has failed since the loss.
  std::string lastFailure() const;

 private:
  void run(const std::stop_token& stop);
  bool attach(const std::stop_token& stop) noexcept;
  void note(const std::exception& failure);

  Pool& pool_;
  mutable base::Mutex mutex_;
  base::Condition changed_;  // wanted_, or the thread is to stop
  bool wanted_ ISOPOOL_GUARDED_BY(mutex_) = false;
  bool closed_ ISOPOOL_GUARDED_BY(mutex_) = false;
  std::string lastFailure_ ISOPOOL_GUARDED_BY(mutex_);
  std::jthread thread_;  // joined by close()
};

}  // namespace isopool::client
