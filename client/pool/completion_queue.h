// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "client/program/process_fork.h"
#include "isopool/async.h"

namespace isopool {

/// The implementation of a CompletionQueue. The calls that are to complete in it share ownership of
/// it. Any thread. No member blocks. Each use throws Error in a forked child, which shares the
/// eventfd with its parent process.
class CompletionState {
 public:
  /// Throws Error if no descriptor is free.
  CompletionState();

  /// Adds a completed call and makes fd() readable. `tag` is the user's; it need not be unique.
  void push(uint64_t tag, const Outcome& outcome);
  /// Removes and returns all completed calls, in the order of their completion.
  std::vector<Completed> take();
  /// The eventfd, for poll(2) and epoll(7) only; readable while take() would return something. The
  /// queue owns it.
  int fd() const;

 private:
  void checkNotForked() const { client::checkNotForked(generation_, "CompletionQueue"); }

  const uint32_t generation_ = client::forkGeneration();
  base::Fd event_;  // an eventfd; not zero while completed_ is not empty
  base::Mutex mutex_;
  std::vector<Completed> completed_ ISOPOOL_GUARDED_BY(mutex_);
};

}  // namespace isopool
