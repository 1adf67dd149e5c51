// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"

namespace isopool::base {

/// The loop of the supervisor's main thread, on which all its handlers run, and its only source of
/// time. KernelEventLoop is the implementation that is shipped; that of tests/simulation has a
/// simulated clock. Timer, ReadinessWatch and Connection are built on it. All members are for the
/// loop's thread.
///
/// A handler is never called from within the call that registers it. A handler that is already
/// queued when its alarm or watch is cancelled or destroyed may still be called: the caller must
/// make sure that it does nothing then.
class EventLoop {
 public:
  using Handler = std::function<void()>;

  /// One time and its handler. Owned by the maker; must not outlive the loop.
  class Alarm {
   public:
    /// Cancels.
    virtual ~Alarm() = default;
    /// Calls `handler` once, at `when`. Replaces the time and the handler that were set before.
    virtual void expireAt(TimePoint when, Handler handler) = 0;
    /// The handler is not called any more, unless it is queued already. No effect if none is set.
    virtual void cancel() = 0;
  };

  /// Watches a borrowed descriptor, which must stay open until the watch is destroyed.
  class Watch {
   public:
    virtual ~Watch() = default;
    /// Calls `handler` once, when the descriptor has something to read, an end of file or an error:
    /// never for an event of another descriptor that had the same number or was watched before.
    virtual void awaitReadable(Handler handler) = 0;
    /// The same for room to write, or an error. Independent of a wait until it is readable.
    virtual void awaitWritable(Handler handler) = 0;
  };

  virtual ~EventLoop() = default;
  virtual TimePoint now() const = 0;
  /// Queues `handler`. Posted handlers are called in the order in which they were posted.
  virtual void post(Handler handler) = 0;
  /// Runs `work` on another thread, one after the other, then calls the handler that it returns on
  /// the loop's thread. If `work` throws, run() throws the exception.
  virtual void runInBackground(std::function<Handler()> work) = 0;
  /// An alarm that is not set.
  virtual std::unique_ptr<Alarm> makeAlarm() = 0;
  /// A watch that waits for nothing yet. The descriptor stays the caller's.
  virtual std::unique_ptr<Watch> watch(int fd) = 0;
  /// Calls `handler` for each of these signals from now on, also for one that is pending because it
  /// was blocked. Unblocks all of them.
  virtual void onSignals(const std::vector<int>& signals, std::function<void(int)> handler) = 0;

  /// Calls handlers until stop(); waits while there is nothing to do.
  virtual void run() = 0;
  /// run() returns after the present handler; queued handlers are not called.
  virtual void stop() = 0;
  virtual bool stopped() const = 0;
};

}  // namespace isopool::base
