// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"

namespace isopool::base {

/// The one thread on which everything of the supervisor happens, and the only source of time for
/// it. KernelEventLoop is the one that is shipped; tests/simulation has another, whose clock it
/// moves itself. Timer, ReadinessWatch and Connection are built on it.
///
/// No handler is called from within the call that it was given to. One that is on its way when its
/// alarm or watch is cancelled or destroyed may still be called: the caller sees to it that it then
/// does nothing.
class EventLoop {
 public:
  using Handler = std::function<void()>;

  class Alarm {
   public:
    virtual ~Alarm() = default;
    /// Calls `handler` at that time; forgets the one before.
    virtual void expireAt(TimePoint when, Handler handler) = 0;
    virtual void cancel() = 0;
  };

  /// Of a borrowed descriptor, which must stay open for as long.
  class Watch {
   public:
    virtual ~Watch() = default;
    /// Calls `handler` one time, when there is something to read, or an end or error to see: never
    /// for an event of another descriptor that had the same number or was watched before.
    virtual void awaitReadable(Handler handler) = 0;
    virtual void awaitWritable(Handler handler) = 0;
  };

  virtual ~EventLoop() = default;
  virtual TimePoint now() const = 0;
  /// Posted handlers are called in their order.
  virtual void post(Handler handler) = 0;
  /// `work` is done beside the loop, one after the other; what it returns is then called on the
  /// loop, which throws what it throws.
  virtual void runInBackground(std::function<Handler()> work) = 0;
  virtual std::unique_ptr<Alarm> makeAlarm() = 0;
  virtual std::unique_ptr<Watch> watch(int fd) = 0;
  /// Calls `handler` for each of these signals that comes, from now on, and for one that has come
  /// already and was blocked: none of them is blocked any more.
  virtual void onSignals(const std::vector<int>& signals, std::function<void(int)> handler) = 0;

  /// Returns after stop().
  virtual void run() = 0;
  virtual void stop() = 0;
  virtual bool stopped() const = 0;
};

}  // namespace isopool::base
