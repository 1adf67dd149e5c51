// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/loop/event_loop.h"
#include "base/loop/timer.h"

namespace isopool::supervisor {

/// While lines of the log wait, because the error stream takes none, tries to write them once a
/// second, and has the loss of others reported. At other times it does nothing. One object at a
/// time; made and destroyed on the loop's thread, on which all of isopoold logs.
class LogRetry {
 public:
  explicit LogRetry(base::EventLoop& loop);
  ~LogRetry();
  LogRetry(const LogRetry&) = delete;
  LogRetry& operator=(const LogRetry&) = delete;

 private:
  void tryLater();

  base::Timer timer_;
};

}  // namespace isopool::supervisor
